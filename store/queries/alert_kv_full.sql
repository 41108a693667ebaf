-- alert_kv_full(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): engines whose KV cache was at least 95 % full while requests ran, in a window of the run's clock
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, kv_usage, running, waiting, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM engine_samples WHERE run_id = run AND source = 'metrics' AND kv_usage >= 0.95 AND running > 0 AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
)
SELECT node, 'KV cache' AS subject, min(at_ns) AS first_ns, max(at_ns) AS last_ns, count(*) AS n, 100.0 * max(kv_usage) AS kv_pct,
       max(running) AS running, max(waiting) AS waiting
FROM s WHERE at_ns BETWEEN t0 AND t1 GROUP BY node HAVING count(*) >= 3 ORDER BY node
