-- live_rails(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): both directions of each port in GB/s (1e9 bytes), and what its error counters gained since t0
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, device, port, door, state, rate_gbps, rx_bytes, tx_bytes, errors_total, drops_total, retransmits_total,
         out_of_sequence_total, rx_pause_total, tx_pause_total, cnp_total, coalesce(mono_ns, wall_ns) AS tick_ns,
         wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM rail_samples
  WHERE (run IS NULL OR run_id = run) AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), ports AS (
  SELECT node, device, port, door, max(at_ns) AS at_ns, arg_max({state: state, line_gbs: rate_gbps / 8}, at_ns) AS newest,
         list({t: tick_ns, tx: tx_bytes, rx: rx_bytes} ORDER BY at_ns) AS samples,
         max(errors_total) - min(errors_total) AS errors, max(drops_total) - min(drops_total) AS drops,
         max(retransmits_total) - min(retransmits_total) AS retransmits,
         max(out_of_sequence_total) - min(out_of_sequence_total) AS out_of_sequence, max(cnp_total) - min(cnp_total) AS cnp,
         max(rx_pause_total) - min(rx_pause_total) AS rx_pause, max(tx_pause_total) - min(tx_pause_total) AS tx_pause
  FROM s WHERE at_ns BETWEEN t0 AND t1 GROUP BY node, device, port, door
), rated AS (  -- bytes per ns are GB/s; a counter that went back was reset: no rate then
  SELECT *, list_transform(list_zip(samples[2:], samples[:-2]), lambda p:
              CASE WHEN p[1].tx >= p[2].tx AND p[1].t > p[2].t THEN (p[1].tx - p[2].tx) / (p[1].t - p[2].t) END) AS tx,
         list_transform(list_zip(samples[2:], samples[:-2]), lambda p:
              CASE WHEN p[1].rx >= p[2].rx AND p[1].t > p[2].t THEN (p[1].rx - p[2].rx) / (p[1].t - p[2].t) END) AS rx
  FROM ports
)
SELECT node, device, port, door, newest.state, newest.line_gbs, tx[-1] AS tx_gbs, rx[-1] AS rx_gbs, at_ns,
       (t1 - at_ns) / 1e9 AS age_s, t1 - at_ns > 5000000000 AS stale,
       list_transform(tx, lambda v: round(v, 3)) AS tx_series, list_transform(rx, lambda v: round(v, 3)) AS rx_series,
       list_max(tx) AS tx_peak_gbs, list_max(rx) AS rx_peak_gbs, errors, drops, retransmits, out_of_sequence, cnp,
       CASE WHEN rx_pause IS NOT NULL OR tx_pause IS NOT NULL THEN coalesce(rx_pause, 0) + coalesce(tx_pause, 0) END AS pause
FROM rated
ORDER BY node, door <> 'rdma', device, port
