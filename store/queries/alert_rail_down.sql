-- alert_rail_down(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[], rails := []::VARCHAR[]): rails whose link was not up, or went down, in a window of the run's clock
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, device, port, state, link_downs_total, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM rail_samples WHERE run_id = run AND door = 'rdma' AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
    AND (len(rails) = 0 OR list_contains(rails, node || ' ' || device))
), step AS (
  SELECT *, link_downs_total - lag(link_downs_total) OVER w AS downs, bool_or(state = 'ACTIVE') OVER (PARTITION BY node, device, port) AS was_up
  FROM s WHERE at_ns BETWEEN t0 AND t1 WINDOW w AS (PARTITION BY node, device, port ORDER BY at_ns)
)
SELECT node, device AS subject, min(at_ns) AS first_ns, max(at_ns) AS last_ns, count(*) AS n, device,
       coalesce(sum(downs) FILTER (WHERE downs >= 0), 0)::BIGINT AS downs, arg_max(state, at_ns) AS state
FROM step WHERE downs > 0 OR (state <> 'ACTIVE' AND (was_up OR len(rails) > 0))
GROUP BY node, device ORDER BY node, device
