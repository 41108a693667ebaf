-- alert_preemptions(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): engines that took at least five requests out of their batch within a window of the run's clock: by their counter, else by their log
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, dp_rank, preemptions_total AS total, kv_usage, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM engine_samples WHERE run_id = run AND source = 'metrics' AND preemptions_total IS NOT NULL AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), step AS (
  SELECT node, at_ns, kv_usage, greatest(total - lag(total) OVER (PARTITION BY node, dp_rank ORDER BY at_ns), 0) AS gained
  FROM s WHERE at_ns BETWEEN t0 AND t1
), told AS (
  SELECT node, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns, NULL::DOUBLE AS kv_usage, 1.0 AS gained
  FROM log_events WHERE run_id = run AND name IN ('retract', 'preempt') AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts)) AND NOT EXISTS (FROM s)
), either AS (
  FROM (SELECT node, at_ns, kv_usage, gained FROM step) UNION ALL FROM told
)
SELECT node, 'engine' AS subject, min(at_ns) FILTER (WHERE gained > 0) AS first_ns, max(at_ns) FILTER (WHERE gained > 0) AS last_ns,
       count(*) FILTER (WHERE gained > 0) AS n, sum(gained)::BIGINT AS preempted, 100.0 * max(kv_usage) AS kv_pct
FROM either WHERE at_ns BETWEEN t0 AND t1 GROUP BY node HAVING sum(gained) >= 5 ORDER BY node
