-- alert_xid(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): Xid errors of the NVIDIA driver in a window of the run's clock, by number and address
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, detail, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns, regexp_extract(detail, 'Xid \(([^)]*)\): (\d+)', ['address', 'number']) AS xid
  FROM log_events WHERE run_id = run AND name = 'xid' AND severity <> 'info' AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
)
SELECT node, 'Xid ' || xid.number || ' ' || xid.address AS subject, min(at_ns) AS first_ns, max(at_ns) AS last_ns, count(*) AS n,
       TRY_CAST(xid.number AS INTEGER) AS xid, arg_max(detail, at_ns) AS said
FROM s WHERE at_ns BETWEEN t0 AND t1 GROUP BY node, xid ORDER BY node, subject
