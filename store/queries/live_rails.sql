-- live_rails(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): both directions of each port in GB/s (1e9 bytes), and what its error counters gained since t0
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT r.node, r.device, r.port, r.door, r.state, r.rate_gbps, r.rx_bytes, r.tx_bytes, r.errors_total, r.drops_total,
         r.retransmits_total, r.out_of_sequence_total, r.rx_pause_total, r.tx_pause_total, r.cnp_total,
         r.wall_ns - coalesce(shifts[list_position(names, r.node)], 0) AS at_ns, coalesce(r.mono_ns, r.wall_ns) AS tick_ns
  FROM rail_samples r
  WHERE (run IS NULL OR r.run_id = run) AND r.wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), step AS (
  SELECT *, tick_ns - lag(tick_ns) OVER port_order AS dt, tx_bytes - lag(tx_bytes) OVER port_order AS d_tx,
         rx_bytes - lag(rx_bytes) OVER port_order AS d_rx
  FROM s WHERE at_ns BETWEEN t0 AND t1
  WINDOW port_order AS (PARTITION BY node, device, port, door ORDER BY at_ns)
), ports AS (  -- a counter that went back was reset: no rate then
  SELECT node, device, port, door, max(at_ns) AS at_ns, arg_max({state: state, line_gbs: rate_gbps / 8}, at_ns) AS newest,
         list(CASE WHEN d_tx >= 0 AND dt > 0 THEN d_tx / dt END ORDER BY at_ns) AS tx,
         list(CASE WHEN d_rx >= 0 AND dt > 0 THEN d_rx / dt END ORDER BY at_ns) AS rx,
         max(errors_total) - min(errors_total) AS errors, max(drops_total) - min(drops_total) AS drops,
         max(retransmits_total) - min(retransmits_total) AS retransmits,
         max(out_of_sequence_total) - min(out_of_sequence_total) AS out_of_sequence, max(cnp_total) - min(cnp_total) AS cnp,
         max(rx_pause_total) - min(rx_pause_total) AS rx_pause, max(tx_pause_total) - min(tx_pause_total) AS tx_pause
  FROM step GROUP BY node, device, port, door
)
SELECT node, device, port, door, newest.state, newest.line_gbs, tx[-1] AS tx_gbs, rx[-1] AS rx_gbs, at_ns,
       (t1 - at_ns) / 1e9 AS age_s, t1 - at_ns > 5000000000 AS stale,
       list_transform(tx, lambda v: round(v, 3)) AS tx_series, list_transform(rx, lambda v: round(v, 3)) AS rx_series,
       list_max(tx) AS tx_peak_gbs, list_max(rx) AS rx_peak_gbs, errors, drops, retransmits, out_of_sequence, cnp,
       CASE WHEN rx_pause IS NOT NULL OR tx_pause IS NOT NULL THEN coalesce(rx_pause, 0) + coalesce(tx_pause, 0) END AS pause
FROM ports
ORDER BY node, door <> 'rdma', device, port
