-- engine_history(run, t0, t1, step, names := []::VARCHAR[], shifts := []::BIGINT[]): the engine over a window of the run's clock by steps of so many seconds, DP ranks added up
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT e.*, e.wall_ns - coalesce(shifts[list_position(names, e.node)], 0) AS moment FROM engine_samples e
  WHERE e.run_id = run AND e.source = 'metrics' AND e.wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), gain AS (  -- a negative gain is a restart: no rate there
  SELECT *, (moment - lag(moment) OVER w) / 1e9 AS dt, prompt_tokens_total - lag(prompt_tokens_total) OVER w AS prompt,
         generation_tokens_total - lag(generation_tokens_total) OVER w AS generated, preemptions_total - lag(preemptions_total) OVER w AS preempted,
         prefix_hits_total - lag(prefix_hits_total) OVER w AS hits, prefix_queries_total - lag(prefix_queries_total) OVER w AS queries,
         queue_sum_s - lag(queue_sum_s) OVER w AS queue_s, queue_count - lag(queue_count) OVER w AS queue_n,
         inference_sum_s - lag(inference_sum_s) OVER w AS service_s, inference_count - lag(inference_count) OVER w AS service_n,
         step_tokens_sum - lag(step_tokens_sum) OVER w AS step_tokens, step_count - lag(step_count) OVER w AS steps,
         spec_accepted_tokens_total - lag(spec_accepted_tokens_total) OVER w AS accepted,
         spec_drafts_total - lag(spec_drafts_total) OVER w AS drafts
  FROM s WHERE moment BETWEEN t0 AND t1 WINDOW w AS (PARTITION BY node, dp_rank ORDER BY moment)
), rank AS (
  SELECT node, dp_rank, moment // (step * 1000000000::BIGINT) AS slot, count(*) AS n, avg(running) AS running, avg(waiting) AS waiting,
         max(kv_usage) AS kv_usage, sum(prompt) FILTER (WHERE prompt >= 0) / nullif(sum(dt) FILTER (WHERE prompt >= 0), 0) AS prompt_tps,
         sum(generated) FILTER (WHERE generated >= 0) / nullif(sum(dt) FILTER (WHERE generated >= 0), 0) AS generation_tps,
         sum(preempted) FILTER (WHERE preempted >= 0) AS preempted, sum(hits) FILTER (WHERE hits >= 0) AS hits, sum(queries) FILTER (WHERE queries >= 0) AS queries,
         sum(queue_s) FILTER (WHERE queue_s >= 0) AS queue_s, sum(queue_n) FILTER (WHERE queue_n >= 0) AS queue_n, sum(service_s) FILTER (WHERE service_s >= 0) AS service_s,
         sum(service_n) FILTER (WHERE service_n >= 0) AS service_n, sum(step_tokens) FILTER (WHERE step_tokens >= 0) AS step_tokens, sum(steps) FILTER (WHERE steps >= 0) AS steps,
         sum(accepted) FILTER (WHERE accepted >= 0) AS accepted, sum(drafts) FILTER (WHERE drafts >= 0) AS drafts, count(*) FILTER (WHERE generated < 0) AS resets
  FROM gain GROUP BY node, dp_rank, slot
)
SELECT slot * (step * 1000000000::BIGINT) AS at_ns, max(n) AS n, sum(running) AS running, sum(waiting) AS waiting, 100.0 * max(kv_usage) AS kv_pct,
       sum(prompt_tps) AS prompt_tps, sum(generation_tps) AS generation_tps, sum(preempted) AS preempted, 100.0 * sum(hits) / nullif(sum(queries), 0) AS prefix_hit_pct,
       1e3 * sum(queue_s) / nullif(sum(queue_n), 0) AS queue_ms, 1e3 * sum(service_s) / nullif(sum(service_n), 0) AS service_ms,
       sum(step_tokens) / nullif(sum(steps), 0) AS tokens_per_step, 1 + sum(accepted) / nullif(sum(drafts), 0) AS accept_length, sum(resets) AS resets
FROM rank GROUP BY slot ORDER BY at_ns
