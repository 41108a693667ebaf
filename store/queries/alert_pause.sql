-- alert_pause(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): rails on which either side told the other to wait, in a window of the run's clock, by direction
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, device, port, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns, rx_pause_total, tx_pause_total, rx_pause_us_total, tx_pause_us_total
  FROM rail_samples WHERE run_id = run AND (rx_pause_total IS NOT NULL OR tx_pause_total IS NOT NULL) AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), step AS (
  SELECT node, device, at_ns, (at_ns - lag(at_ns) OVER w) / 1e3 AS us, rx_pause_total - lag(rx_pause_total) OVER w AS rx,
         tx_pause_total - lag(tx_pause_total) OVER w AS tx,
         rx_pause_us_total - lag(rx_pause_us_total) OVER w AS rx_us,
         tx_pause_us_total - lag(tx_pause_us_total) OVER w AS tx_us
  FROM s WHERE at_ns BETWEEN t0 AND t1 WINDOW w AS (PARTITION BY node, device, port ORDER BY at_ns)
)
SELECT node, device AS subject, min(at_ns) FILTER (WHERE rx > 0 OR tx > 0) AS first_ns, max(at_ns) FILTER (WHERE rx > 0 OR tx > 0) AS last_ns,
       count(*) FILTER (WHERE rx > 0 OR tx > 0) AS n, device, sum(rx) FILTER (WHERE rx >= 0)::BIGINT AS rx_frames, sum(tx) FILTER (WHERE tx >= 0)::BIGINT AS tx_frames,
       100.0 * sum(rx_us) FILTER (WHERE rx_us >= 0) / sum(us) AS rx_pct, 100.0 * sum(tx_us) FILTER (WHERE tx_us >= 0) / sum(us) AS tx_pct
FROM step GROUP BY node, device HAVING coalesce(sum(rx) FILTER (WHERE rx >= 0), 0) + coalesce(sum(tx) FILTER (WHERE tx >= 0), 0) >= 100
ORDER BY node, device
