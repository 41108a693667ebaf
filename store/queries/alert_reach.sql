-- alert_reach(run, t0, names := []::VARCHAR[], shifts := []::BIGINT[]): newest instant on the run's clock of which each node has given figures, since t0
SELECT node, max(wall_ns - coalesce(shifts[list_position(names, node)], 0)) AS at_ns
FROM host_samples WHERE run_id = run AND wall_ns >= t0 + least(0, list_min(shifts)) GROUP BY node ORDER BY node
