-- summary_engine(run): what each server that a run asked for its metrics said over the whole run: requests, queue, KV cache, rates, mean latencies in ms
WITH s AS (  -- a counter that went back was reset
  SELECT *, (wall_ns - lag(wall_ns) OVER w) / 1e9 AS dt, prompt_tokens_total - lag(prompt_tokens_total) OVER w AS d_prompt,
         generation_tokens_total - lag(generation_tokens_total) OVER w AS d_generation,
         requests_total - lag(requests_total) OVER w AS d_requests, preemptions_total - lag(preemptions_total) OVER w AS d_preempted,
         ttft_sum_s - lag(ttft_sum_s) OVER w AS d_ttft, ttft_count - lag(ttft_count) OVER w AS n_ttft,
         itl_sum_s - lag(itl_sum_s) OVER w AS d_itl, itl_count - lag(itl_count) OVER w AS n_itl
  FROM engine_samples
  WHERE run_id = run AND source = 'metrics'
  WINDOW w AS (PARTITION BY life_id, node, dp_rank ORDER BY wall_ns)
), seconds AS (  -- DP ranks added up
  SELECT life_id, node, wall_ns // 1000000000 AS second, any_value(engine) AS engine, count(*) AS samples,
         sum(running) AS running, sum(waiting) AS waiting, max(kv_usage) AS kv_usage,
         sum(CASE WHEN d_prompt >= 0 THEN d_prompt END) AS prompt_tokens,
         sum(CASE WHEN d_generation >= 0 THEN d_generation END) AS generation_tokens,
         sum(CASE WHEN d_prompt >= 0 AND dt > 0 THEN d_prompt / dt END) AS prompt_tps,
         sum(CASE WHEN d_generation >= 0 AND dt > 0 THEN d_generation / dt END) AS generation_tps,
         sum(CASE WHEN d_requests >= 0 THEN d_requests END) AS requests,
         sum(CASE WHEN d_preempted >= 0 THEN d_preempted END) AS preemptions, max(dt) AS dt,
         sum(CASE WHEN n_ttft > 0 THEN d_ttft END) AS ttft_s, sum(CASE WHEN n_ttft > 0 THEN n_ttft END) AS ttft_n,
         sum(CASE WHEN n_itl > 0 THEN d_itl END) AS itl_s, sum(CASE WHEN n_itl > 0 THEN n_itl END) AS itl_n
  FROM s GROUP BY life_id, node, second
)
SELECT life_id, node, any_value(engine) AS engine, sum(samples)::BIGINT AS samples, avg(running) AS running_mean,
       max(running) AS running_max, avg(waiting) AS waiting_mean, max(waiting) AS waiting_max, max(kv_usage) AS kv_usage_max,
       sum(prompt_tokens) AS prompt_tokens, sum(generation_tokens) AS generation_tokens, sum(requests) AS requests,
       sum(preemptions) AS preemptions, sum(prompt_tokens) / nullif(sum(dt), 0) AS prompt_tps_mean,
       max(prompt_tps) AS prompt_tps_peak, sum(generation_tokens) / nullif(sum(dt), 0) AS generation_tps_mean,
       max(generation_tps) AS generation_tps_peak, sum(ttft_s) * 1e3 / sum(ttft_n) AS ttft_mean_ms,
       sum(itl_s) * 1e3 / sum(itl_n) AS itl_mean_ms
FROM seconds
GROUP BY life_id, node
ORDER BY life_id, node
