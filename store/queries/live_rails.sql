-- live_rails(run, t0, t1, slack := 0): both directions of each port in GB/s (1e9 bytes), and what its error counters gained since t0
WITH s AS (
  SELECT r.node, r.device, r.port, r.door, r.state, r.rate_gbps, r.rx_bytes, r.tx_bytes, r.errors_total, r.drops_total,
         r.retransmits_total, r.out_of_sequence_total, r.rx_pause_total, r.tx_pause_total, r.cnp_total,
         r.wall_ns - coalesce(c.shift_ns, 0) AS at_ns, coalesce(r.mono_ns, r.wall_ns) AS tick_ns
  FROM rail_samples r
  LEFT JOIN live_clock(run) c ON c.node = r.node
  WHERE (run IS NULL OR r.run_id = run) AND r.wall_ns BETWEEN t0 - slack AND t1 + slack
), step AS (
  SELECT *, tick_ns - lag(tick_ns) OVER port_order AS dt, tx_bytes - lag(tx_bytes) OVER port_order AS d_tx,
         rx_bytes - lag(rx_bytes) OVER port_order AS d_rx
  FROM s WHERE at_ns BETWEEN t0 AND t1
  WINDOW port_order AS (PARTITION BY node, device, port, door ORDER BY at_ns)
), rated AS (  -- a counter that went back was reset: no rate then
  SELECT *, CASE WHEN d_tx >= 0 AND dt > 0 THEN d_tx / dt END AS tx_gbs, CASE WHEN d_rx >= 0 AND dt > 0 THEN d_rx / dt END AS rx_gbs
  FROM step
), gains AS (
  SELECT node, device, port, door,
         list(round(tx_gbs, 3) ORDER BY at_ns) AS tx_series, list(round(rx_gbs, 3) ORDER BY at_ns) AS rx_series,
         max(tx_gbs) AS tx_peak_gbs, max(rx_gbs) AS rx_peak_gbs,
         greatest(max(errors_total) - min(errors_total), 0) AS errors, greatest(max(drops_total) - min(drops_total), 0) AS drops,
         greatest(max(retransmits_total) - min(retransmits_total), 0) AS retransmits,
         greatest(max(out_of_sequence_total) - min(out_of_sequence_total), 0) AS out_of_sequence,
         greatest(max(cnp_total) - min(cnp_total), 0) AS cnp,
         coalesce(max(rx_pause_total) - min(rx_pause_total), max(tx_pause_total) - min(tx_pause_total))
           + CASE WHEN max(rx_pause_total) IS NULL THEN 0 ELSE coalesce(max(tx_pause_total) - min(tx_pause_total), 0) END AS pause
  FROM rated GROUP BY node, device, port, door
), newest AS (
  SELECT node, device, port, door, state, rate_gbps, tx_gbs, rx_gbs, at_ns FROM rated
  QUALIFY row_number() OVER (PARTITION BY node, device, port, door ORDER BY at_ns DESC) = 1
)
SELECT n.node, n.device, n.port, n.door, n.state, n.rate_gbps / 8 AS line_gbs, n.tx_gbs, n.rx_gbs, n.at_ns,
       (t1 - n.at_ns) / 1e9 AS age_s, t1 - n.at_ns > 5000000000 AS stale, g.* EXCLUDE (node, device, port, door)
FROM newest n JOIN gains g ON g.node = n.node AND g.device = n.device AND g.door = n.door AND g.port IS NOT DISTINCT FROM n.port
ORDER BY n.node, n.door <> 'rdma', n.device, n.port
