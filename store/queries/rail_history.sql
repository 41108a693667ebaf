-- rail_history(run, t0, t1, step, of_node := NULL, names := []::VARCHAR[], shifts := []::BIGINT[]): RDMA ports over a window of the run's clock by steps of so many seconds: from roll-ups for steps of 10 s and more
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says); step: 1 to 9, or a multiple of 10
WITH unit AS (
  SELECT CASE WHEN step >= 60 AND step % 60 = 0 THEN 60 WHEN step >= 10 THEN 10 ELSE 0 END AS s
), rolled AS (
  SELECT r.* FROM rail_rollups r, unit
  WHERE step >= 10 AND r.run_id = run AND r.door = 'rdma' AND r.step_s = unit.s
    AND r.wall_ns BETWEEN t0 + least(0, list_min(shifts)) - 60000000000 AND t1 + greatest(0, list_max(shifts)) AND (of_node IS NULL OR r.node = of_node)
), until AS (
  SELECT node, max(wall_ns) + (SELECT s FROM unit) * 1000000000::BIGINT AS ns FROM rolled GROUP BY node
), sample AS (
  SELECT s.node, s.device, coalesce(s.port, 0) AS port, s.wall_ns, coalesce(s.mono_ns, s.wall_ns) AS tick_ns, s.rate_gbps, s.tx_bytes, s.rx_bytes,
         s.errors_total, s.drops_total, s.retransmits_total, coalesce(s.rx_pause_total, s.tx_pause_total) + coalesce(s.tx_pause_total, 0) AS pauses_total, u.ns AS until_ns
  FROM rail_samples s LEFT JOIN until u ON u.node = s.node
  WHERE s.run_id = run AND s.door = 'rdma' AND (of_node IS NULL OR s.node = of_node)
    AND s.wall_ns BETWEEN greatest(t0 + least(0, list_min(shifts)), coalesce((SELECT min(ns) FROM until), 0)) - 15000000000 AND t1 + greatest(0, list_max(shifts))
), gain AS (  -- a counter that went back was reset: no rate there
  SELECT *, tick_ns - lag(tick_ns) OVER w AS ns, tx_bytes - lag(tx_bytes) OVER w AS tx, rx_bytes - lag(rx_bytes) OVER w AS rx,
         errors_total - lag(errors_total) OVER w AS errors, drops_total - lag(drops_total) OVER w AS drops,
         retransmits_total - lag(retransmits_total) OVER w AS again, pauses_total - lag(pauses_total IGNORE NULLS) OVER w AS pauses
  FROM sample WINDOW w AS (PARTITION BY node, device, port ORDER BY tick_ns)
), either AS (
  SELECT node, device, port, wall_ns, n, line_gbs, tx_gbs, rx_gbs, tx_gbs_max, rx_gbs_max, errors, drops, retransmits, pauses, resets FROM rolled
  UNION ALL
  SELECT node, device, port, wall_ns, 1, rate_gbps / 8, CASE WHEN tx >= 0 THEN tx / nullif(ns, 0) END, CASE WHEN rx >= 0 THEN rx / nullif(ns, 0) END,
         CASE WHEN tx >= 0 THEN tx / nullif(ns, 0) END, CASE WHEN rx >= 0 THEN rx / nullif(ns, 0) END,
         CASE WHEN errors >= 0 THEN errors END, CASE WHEN drops >= 0 THEN drops END, CASE WHEN again >= 0 THEN again END,
         CASE WHEN pauses >= 0 THEN pauses END, CASE WHEN tx < 0 OR rx < 0 THEN 1 ELSE 0 END
  FROM gain WHERE ns IS NOT NULL AND wall_ns >= coalesce(until_ns, 0)
), placed AS (
  SELECT *, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS moment FROM either
)
SELECT node, device, port, moment // (step * 1000000000::BIGINT) * (step * 1000000000::BIGINT) AS at_ns, sum(n) AS n, max(line_gbs) AS line_gbs,
       sum(tx_gbs * n) / nullif(sum(n) FILTER (WHERE tx_gbs IS NOT NULL), 0) AS tx_gbs, sum(rx_gbs * n) / nullif(sum(n) FILTER (WHERE rx_gbs IS NOT NULL), 0) AS rx_gbs,
       max(tx_gbs_max) AS tx_gbs_max, max(rx_gbs_max) AS rx_gbs_max, sum(errors)::BIGINT AS errors, sum(drops)::BIGINT AS drops,
       sum(retransmits)::BIGINT AS retransmits, sum(pauses)::BIGINT AS pauses, sum(resets)::BIGINT AS resets
FROM placed WHERE moment BETWEEN t0 AND t1
GROUP BY node, device, port, moment // (step * 1000000000::BIGINT) ORDER BY node, device, port, at_ns
