-- alert_probe_broken(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): sources of figures that failed or hung, in a window of the run's clock
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT e.node, CASE WHEN j.kind IN ('probe.nvidia', 'probe.pcie', 'probe.gpu_processes') THEN 'nvidia-smi'
                      ELSE replace(j.kind, 'probe.', 'probe ') END AS subject, e.name, e.detail, e.wall_ns - coalesce(shifts[list_position(names, e.node)], 0) AS at_ns
  FROM log_events e JOIN jobs j USING (job_id)
  WHERE e.run_id = run AND NOT coalesce(contains(e.detail, 'device handle'), false) -- a lost GPU is an alert of its own
    AND e.name IN ('source_failed', 'source_hung', 'driver_mismatch', 'driver_unavailable') AND e.wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
)
SELECT node, subject, min(at_ns) AS first_ns, max(at_ns) AS last_ns, count(*) AS n,
       arg_max(name, at_ns) AS what, arg_max(detail, at_ns) AS said
FROM s WHERE at_ns BETWEEN t0 AND t1 GROUP BY node, subject ORDER BY node, subject
