-- rail_window(run, t0, t1, of_node, names := []::VARCHAR[], shifts := []::BIGINT[]): each RDMA port of a node over a window of the run's clock: mean rates, shares, and what its counters gained
WITH s AS (
  SELECT *, coalesce(mono_ns, wall_ns) AS tick_ns, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM rail_samples WHERE run_id = run AND node = of_node AND door = 'rdma'
    AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), step AS (  -- a counter that went back was reset: that interval is counted and left out
  SELECT *, tick_ns - lag(tick_ns) OVER w AS ns, tx_bytes - lag(tx_bytes) OVER w AS tx, rx_bytes - lag(rx_bytes) OVER w AS rx,
         errors_total - lag(errors_total) OVER w AS errors, drops_total - lag(drops_total) OVER w AS drops_,
         retransmits_total - lag(retransmits_total) OVER w AS again, timeouts_total - lag(timeouts_total) OVER w AS late,
         cnp_total - lag(cnp_total) OVER w AS cnp_, ecn_total - lag(ecn_total) OVER w AS ecn_,
         rx_pause_total - lag(rx_pause_total IGNORE NULLS) OVER w AS rx_pause, tx_pause_total - lag(tx_pause_total IGNORE NULLS) OVER w AS tx_pause
  FROM s WHERE at_ns BETWEEN t0 AND t1 WINDOW w AS (PARTITION BY device, port ORDER BY tick_ns)
), rail AS (
  SELECT device, arg_max(netdev, at_ns) AS netdev, arg_max(numa, at_ns) AS numa, arg_max(state, at_ns) AS state, arg_max(pfc, at_ns) AS pfc,
         arg_max(missing, at_ns) AS missing, max(rate_gbps) / 8 AS line_gbs, sum(ns) FILTER (WHERE tx >= 0 AND rx >= 0) AS ns,
         sum(tx) FILTER (WHERE tx >= 0 AND rx >= 0) AS tx_bytes, sum(rx) FILTER (WHERE tx >= 0 AND rx >= 0) AS rx_bytes,
         sum(errors) FILTER (WHERE errors >= 0)::BIGINT AS errors, sum(drops_) FILTER (WHERE drops_ >= 0)::BIGINT AS drops, sum(again) FILTER (WHERE again >= 0)::BIGINT AS retransmits,
         sum(late) FILTER (WHERE late >= 0)::BIGINT AS timeouts, sum(cnp_) FILTER (WHERE cnp_ >= 0)::BIGINT AS cnp, sum(ecn_) FILTER (WHERE ecn_ >= 0)::BIGINT AS ecn,
         sum(rx_pause) FILTER (WHERE rx_pause >= 0)::BIGINT AS rx_pauses, sum(tx_pause) FILTER (WHERE tx_pause >= 0)::BIGINT AS tx_pauses,
         count(*) FILTER (WHERE tx < 0 OR rx < 0) AS resets
  FROM step GROUP BY device
)
SELECT device, netdev, numa, state, pfc, missing, line_gbs, tx_bytes / nullif(ns, 0) AS tx_gbs, rx_bytes / nullif(ns, 0) AS rx_gbs,
       100.0 * greatest(tx_bytes, rx_bytes) / nullif(ns, 0) / line_gbs AS line_pct,
       100.0 * (tx_bytes + rx_bytes) / nullif(sum(tx_bytes + rx_bytes) OVER (), 0) AS node_pct, count(*) OVER () AS rails,
       errors, drops, retransmits, timeouts, cnp, ecn, rx_pauses, tx_pauses, resets
FROM rail ORDER BY device
