-- alert_clock(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): nodes whose clock moved against the owner's by more than 20 ms beyond what the measurements leave open, in a window of the run's clock
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, offset_ns, error_ns, wall_ns FROM clock_offsets WHERE run_id = run AND wall_ns BETWEEN t0 AND t1
), first AS (
  SELECT node, arg_min(offset_ns, wall_ns) AS offset_ns, arg_min(error_ns, wall_ns) AS error_ns
  FROM clock_offsets WHERE run_id = run GROUP BY node
), apart AS (
  SELECT s.node, s.wall_ns, s.offset_ns - first.offset_ns AS moved_ns, s.error_ns + first.error_ns AS error_ns
  FROM s JOIN first USING (node)
)
SELECT node, 'clock' AS subject, min(wall_ns) AS first_ns, max(wall_ns) AS last_ns, count(*) AS n, arg_max(moved_ns, wall_ns) / 1e6 AS moved_ms,
       arg_max(error_ns, wall_ns) / 1e6 AS error_ms
FROM apart WHERE abs(moved_ns) - error_ns > 20000000 GROUP BY node ORDER BY node
