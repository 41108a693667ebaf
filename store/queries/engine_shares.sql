-- engine_shares(run): what the engine's counters gained over each attempt's whole load, DP ranks added up: from the last scrape before it to the first one after it
WITH load AS (
  SELECT attempt_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM live_phases(run)
  WHERE name IN ('warmup', 'ramp', 'steady', 'drain') AND start_ns IS NOT NULL GROUP BY attempt_id HAVING max(end_ns) IS NOT NULL
), clock AS (
  SELECT node, shift_ns FROM live_clock(run)
), s AS (
  SELECT e.*, e.wall_ns - coalesce(c.shift_ns, 0) AS at_ns FROM engine_samples e LEFT JOIN clock c ON c.node = e.node
  WHERE e.run_id = run AND e.source = 'metrics'
), edge AS (
  SELECT l.attempt_id, s.node, s.dp_rank, any_value(l.start_ns) AS start_ns, any_value(l.end_ns) AS end_ns,
         coalesce(max(at_ns) FILTER (WHERE at_ns <= l.start_ns), min(at_ns)) AS from_ns,
         coalesce(min(at_ns) FILTER (WHERE at_ns >= l.end_ns), max(at_ns)) AS to_ns
  FROM load l JOIN s ON s.at_ns BETWEEN l.start_ns - 10000000000 AND l.end_ns + 10000000000
  GROUP BY l.attempt_id, s.node, s.dp_rank
), within AS (
  SELECT e.attempt_id, e.from_ns, e.to_ns, e.start_ns, e.end_ns, s.*,
         s.generation_tokens_total < lag(s.generation_tokens_total) OVER (PARTITION BY e.attempt_id, e.node, e.dp_rank ORDER BY s.at_ns) AS reset
  FROM edge e JOIN s ON s.node = e.node AND s.dp_rank IS NOT DISTINCT FROM e.dp_rank AND s.at_ns BETWEEN e.from_ns AND e.to_ns
), rank AS (
  SELECT attempt_id, node, dp_rank, any_value(from_ns) <= any_value(start_ns) AND any_value(to_ns) >= any_value(end_ns) AS bracketed,
         coalesce(bool_or(reset), false) AS reset, (any_value(to_ns) - any_value(from_ns)) / 1e9 AS seconds, count(*) AS scrapes,
         max(kv_usage) AS kv_max, max(running) AS running_max, max(waiting) AS waiting_max, any_value(prefix_unit) AS prefix_unit,
         arg_max(prompt_tokens_total, at_ns) - arg_min(prompt_tokens_total, at_ns) AS prompt_tokens,
         arg_max(generation_tokens_total, at_ns) - arg_min(generation_tokens_total, at_ns) AS generation_tokens,
         arg_max(computed_tokens_total, at_ns) - arg_min(computed_tokens_total, at_ns) AS computed_tokens,
         arg_max(cached_tokens_total, at_ns) - arg_min(cached_tokens_total, at_ns) AS cached_tokens,
         arg_max(preemptions_total, at_ns) - arg_min(preemptions_total, at_ns) AS preemptions,
         arg_max(aborted_total, at_ns) - arg_min(aborted_total, at_ns) AS aborted,
         arg_max(prefix_queries_total, at_ns) - arg_min(prefix_queries_total, at_ns) AS prefix_queries,
         arg_max(prefix_hits_total, at_ns) - arg_min(prefix_hits_total, at_ns) AS prefix_hits,
         arg_max(spec_drafts_total, at_ns) - arg_min(spec_drafts_total, at_ns) AS drafts,
         arg_max(spec_draft_tokens_total, at_ns) - arg_min(spec_draft_tokens_total, at_ns) AS draft_tokens,
         arg_max(spec_accepted_tokens_total, at_ns) - arg_min(spec_accepted_tokens_total, at_ns) AS accepted_tokens,
         arg_max(queue_sum_s, at_ns) - arg_min(queue_sum_s, at_ns) AS queue_s,
         arg_max(queue_count, at_ns) - arg_min(queue_count, at_ns) AS queue_n,
         arg_max(prefill_sum_s, at_ns) - arg_min(prefill_sum_s, at_ns) AS prefill_s,
         arg_max(prefill_count, at_ns) - arg_min(prefill_count, at_ns) AS prefill_n,
         arg_max(decode_sum_s, at_ns) - arg_min(decode_sum_s, at_ns) AS decode_s,
         arg_max(decode_count, at_ns) - arg_min(decode_count, at_ns) AS decode_n,
         arg_max(inference_sum_s, at_ns) - arg_min(inference_sum_s, at_ns) AS inference_s,
         arg_max(inference_count, at_ns) - arg_min(inference_count, at_ns) AS inference_n,
         arg_max(step_tokens_sum, at_ns) - arg_min(step_tokens_sum, at_ns) AS step_tokens,
         arg_max(step_count, at_ns) - arg_min(step_count, at_ns) AS steps
  FROM within GROUP BY attempt_id, node, dp_rank
), whole AS (
  SELECT attempt_id, bool_and(bracketed) AS bracketed, bool_or(reset) AS reset, max(seconds) AS seconds, sum(scrapes)::BIGINT AS scrapes,
         100.0 * max(kv_max) AS kv_max_pct, sum(running_max) AS running_max, sum(waiting_max) AS waiting_max, any_value(prefix_unit) AS prefix_unit,
         sum(prompt_tokens) AS prompt_tokens, sum(generation_tokens) AS generation_tokens, sum(computed_tokens) AS computed_tokens,
         sum(cached_tokens) AS cached_tokens, sum(preemptions) AS preemptions, sum(aborted) AS aborted,
         100.0 * sum(prefix_hits) / nullif(sum(prefix_queries), 0) AS prefix_hit_pct,
         100.0 * sum(accepted_tokens) / nullif(sum(draft_tokens), 0) AS accept_pct,
         1 + sum(accepted_tokens) / nullif(sum(drafts), 0) AS accept_length,
         1e3 * sum(queue_s) / nullif(sum(queue_n), 0) AS queue_ms, 1e3 * sum(prefill_s) / nullif(sum(prefill_n), 0) AS prefill_ms,
         1e3 * sum(decode_s) / nullif(sum(decode_n), 0) AS decode_ms, 1e3 * sum(inference_s) / nullif(sum(inference_n), 0) AS service_ms,
         sum(step_tokens) / nullif(sum(steps), 0) AS tokens_per_step, sum(steps) AS steps
  FROM rank GROUP BY attempt_id
)
-- a counter that went back began anew with another server: what it gained is not known
SELECT attempt_id, bracketed, reset, seconds, scrapes, kv_max_pct, running_max, waiting_max, prefix_unit,
       CASE WHEN NOT reset THEN prompt_tokens END AS prompt_tokens, CASE WHEN NOT reset THEN generation_tokens END AS generation_tokens,
       CASE WHEN NOT reset THEN computed_tokens END AS computed_tokens, CASE WHEN NOT reset THEN cached_tokens END AS cached_tokens,
       CASE WHEN NOT reset THEN preemptions END AS preemptions, CASE WHEN NOT reset THEN aborted END AS aborted,
       CASE WHEN NOT reset THEN prefix_hit_pct END AS prefix_hit_pct, CASE WHEN NOT reset THEN accept_pct END AS accept_pct,
       CASE WHEN NOT reset THEN accept_length END AS accept_length, CASE WHEN NOT reset THEN queue_ms END AS queue_ms,
       CASE WHEN NOT reset THEN prefill_ms END AS prefill_ms, CASE WHEN NOT reset THEN decode_ms END AS decode_ms,
       CASE WHEN NOT reset THEN service_ms END AS service_ms, CASE WHEN NOT reset THEN tokens_per_step END AS tokens_per_step,
       CASE WHEN NOT reset THEN steps END AS steps,
       CASE WHEN NOT reset AND computed_tokens IS NOT NULL THEN greatest(computed_tokens + coalesce(cached_tokens, 0) - prompt_tokens, 0) END AS recomputed_tokens
FROM whole ORDER BY attempt_id
