-- live_engine(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): the engine's gauges and rates, DP ranks added up, newest second and series since t0
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT e.*, coalesce(e.source, '') = 'log' AS from_log, e.wall_ns - coalesce(shifts[list_position(names, e.node)], 0) AS at_ns
  FROM engine_samples e
  WHERE (run IS NULL OR e.run_id = run) AND e.wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), step AS (  -- what each counter gained since the sample before; a negative gain is a restart
  SELECT *, (at_ns - lag(at_ns) OVER w) / 1e9 AS dt,
         prompt_tokens_total - lag(prompt_tokens_total) OVER w AS d_prompt,
         generation_tokens_total - lag(generation_tokens_total) OVER w AS d_generation,
         preemptions_total - lag(preemptions_total) OVER w AS d_preempted,
         prefix_hits_total - lag(prefix_hits_total) OVER w AS d_hits,
         prefix_queries_total - lag(prefix_queries_total) OVER w AS d_queries,
         ttft_sum_s - lag(ttft_sum_s) OVER w AS d_ttft, ttft_count - lag(ttft_count) OVER w AS n_ttft,
         itl_sum_s - lag(itl_sum_s) OVER w AS d_itl, itl_count - lag(itl_count) OVER w AS n_itl,
         queue_sum_s - lag(queue_sum_s) OVER w AS d_queue, queue_count - lag(queue_count) OVER w AS n_queue
  FROM s WHERE at_ns BETWEEN t0 AND t1
  WINDOW w AS (PARTITION BY from_log, node, dp_rank ORDER BY at_ns)
), seconds AS (
  SELECT from_log, at_ns // 1000000000 AS second, max(at_ns) AS at_ns, sum(running) AS running, sum(waiting) AS waiting,
         max(kv_usage) AS kv_usage, sum(kv_tokens_total) AS kv_tokens_total,
         sum(CASE WHEN d_prompt >= 0 AND dt > 0 THEN d_prompt / dt END) AS prompt_tps,
         coalesce(sum(CASE WHEN d_generation >= 0 AND dt > 0 THEN d_generation / dt END), sum(gen_throughput)) AS generation_tps,
         sum(CASE WHEN d_preempted >= 0 THEN d_preempted END) AS preempted,
         sum(CASE WHEN d_queries >= 0 THEN d_hits END) AS hits, sum(CASE WHEN d_queries >= 0 THEN d_queries END) AS queries,
         sum(CASE WHEN n_ttft > 0 THEN d_ttft END) AS ttft_s, sum(CASE WHEN n_ttft > 0 THEN n_ttft END) AS ttft_n,
         sum(CASE WHEN n_itl > 0 THEN d_itl END) AS itl_s, sum(CASE WHEN n_itl > 0 THEN n_itl END) AS itl_n,
         sum(CASE WHEN n_queue > 0 THEN d_queue END) AS queue_s, sum(CASE WHEN n_queue > 0 THEN n_queue END) AS queue_n
  FROM step GROUP BY from_log, second
), whole AS (  -- the engine's metrics are preferred to what its log says
  SELECT from_log, max(at_ns) AS at_ns, list(running ORDER BY second) AS running_series,
         list(waiting ORDER BY second) AS waiting_series, list(kv_usage ORDER BY second) AS kv_series,
         list(prompt_tps ORDER BY second) AS prompt_series, list(generation_tps ORDER BY second) AS generation_series,
         arg_max(kv_tokens_total, second) AS kv_tokens_total, sum(preempted) AS preemptions,
         sum(hits) / nullif(sum(queries), 0) AS prefix_hit_share, sum(ttft_s) * 1e3 / sum(ttft_n) AS ttft_ms,
         sum(itl_s) * 1e3 / sum(itl_n) AS itl_ms, sum(queue_s) * 1e3 / sum(queue_n) AS queue_ms
  FROM seconds GROUP BY from_log ORDER BY from_log LIMIT 1
)
SELECT * EXCLUDE (from_log), running_series[-1] AS running, waiting_series[-1] AS waiting, kv_series[-1] AS kv_usage,
       prompt_series[-1] AS prompt_tps, generation_series[-1] AS generation_tps,
       (t1 - at_ns) / 1e9 AS age_s, t1 - at_ns > 5000000000 AS stale
FROM whole
