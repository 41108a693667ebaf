-- alert_rail_unequal(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[], rails := []::VARCHAR[]): rails that carry less than their part while their node's others move data, in a window of the run's clock
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, device, port, state, tx_bytes + rx_bytes AS moved, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM rail_samples WHERE run_id = run AND door = 'rdma' AND tx_bytes IS NOT NULL AND rx_bytes IS NOT NULL AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
    AND (len(rails) = 0 OR list_contains(rails, node || ' ' || device))
), step AS (  -- a counter that went back was reset
  SELECT node, device, at_ns // 5000000000 AS slot, at_ns, greatest(moved - lag(moved) OVER (PARTITION BY node, device, port ORDER BY at_ns), 0) AS gained
  FROM s WHERE at_ns BETWEEN t0 AND t1
), slots AS (
  SELECT node, device, slot, min(at_ns) AS from_ns, max(at_ns) AS to_ns, sum(gained) AS gained FROM step GROUP BY node, device, slot
), shares AS (
  SELECT *, sum(gained) OVER w AS whole, count(*) OVER w AS rails_there FROM slots WINDOW w AS (PARTITION BY node, slot)
), bad AS (
  SELECT * FROM shares WHERE rails_there >= 2 AND whole > 1e8 AND gained < 0.8 * whole / rails_there
)
SELECT node, device AS subject, min(from_ns) AS first_ns, max(to_ns) AS last_ns, count(*) AS n, device,
       100.0 * sum(gained) / sum(whole) AS share_pct, any_value(rails_there) AS rails, sum(gained) AS bytes, sum(whole) AS all_bytes,
       sum(gained) < 0.05 * sum(whole) AS idle
FROM bad GROUP BY node, device HAVING count(*) >= 3 AND sum(whole) > 1e9 ORDER BY node, device
