-- live_engine(run, t0, t1, slack := 0): the engine's gauges and rates, DP ranks added up, newest second and series since t0
WITH s AS (
  SELECT e.*, e.wall_ns - coalesce(c.shift_ns, 0) AS at_ns
  FROM engine_samples e
  LEFT JOIN live_clock(run) c ON c.node = e.node
  WHERE (run IS NULL OR e.run_id = run) AND e.wall_ns BETWEEN t0 - slack AND t1 + slack
), kept AS (  -- the engine's metrics are preferred to what its log says
  SELECT *, coalesce(source, '') = 'log' AS from_log FROM s WHERE at_ns BETWEEN t0 AND t1
  QUALIFY from_log = min(from_log) OVER ()
), step AS (
  SELECT *, (at_ns - lag(at_ns) OVER w) / 1e9 AS dt,
         prompt_tokens_total - lag(prompt_tokens_total) OVER w AS d_prompt,
         generation_tokens_total - lag(generation_tokens_total) OVER w AS d_generation
  FROM kept WINDOW w AS (PARTITION BY node, dp_rank ORDER BY at_ns)
), seconds AS (
  SELECT at_ns // 1000000000 AS second, max(at_ns) AS at_ns, any_value(engine) AS engine,
         sum(running) AS running, sum(waiting) AS waiting, max(kv_usage) AS kv_usage, sum(kv_tokens_total) AS kv_tokens_total,
         sum(CASE WHEN d_prompt >= 0 AND dt > 0 THEN d_prompt / dt END) AS prompt_tps,
         coalesce(sum(CASE WHEN d_generation >= 0 AND dt > 0 THEN d_generation / dt END), sum(gen_throughput)) AS generation_tps
  FROM step GROUP BY second
), gains AS (
  SELECT sum(preemptions) AS preemptions, sum(hits) / nullif(sum(queries), 0) AS prefix_hit_share,
         sum(ttft_s) * 1e3 / nullif(sum(ttft_n), 0) AS ttft_ms, sum(itl_s) * 1e3 / nullif(sum(itl_n), 0) AS itl_ms,
         sum(queue_s) * 1e3 / nullif(sum(queue_n), 0) AS queue_ms
  FROM (
    SELECT max(preemptions_total) - min(preemptions_total) AS preemptions,
           max(prefix_hits_total) - min(prefix_hits_total) AS hits, max(prefix_queries_total) - min(prefix_queries_total) AS queries,
           max(ttft_sum_s) - min(ttft_sum_s) AS ttft_s, max(ttft_count) - min(ttft_count) AS ttft_n,
           max(itl_sum_s) - min(itl_sum_s) AS itl_s, max(itl_count) - min(itl_count) AS itl_n,
           max(queue_sum_s) - min(queue_sum_s) AS queue_s, max(queue_count) - min(queue_count) AS queue_n
    FROM kept GROUP BY node, dp_rank
  )
)
SELECT newest.*, (t1 - newest.at_ns) / 1e9 AS age_s, t1 - newest.at_ns > 5000000000 AS stale, gains.*,
       series.* EXCLUDE (n)
FROM (SELECT * FROM seconds ORDER BY second DESC LIMIT 1) newest, gains,
     (SELECT count(*) AS n, list(running ORDER BY second) AS running_series, list(waiting ORDER BY second) AS waiting_series,
             list(kv_usage ORDER BY second) AS kv_series, list(round(prompt_tps, 1) ORDER BY second) AS prompt_series,
             list(round(generation_tps, 1) ORDER BY second) AS generation_series,
             list(second ORDER BY second) AS second_series
      FROM seconds) series
