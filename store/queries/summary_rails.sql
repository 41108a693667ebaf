-- summary_rails(run): each port over a whole run in GB/s (1e9 bytes): mean and peak of both directions, and what its error counters gained
WITH s AS (  -- bytes per ns are GB/s; a counter that went back was reset
  SELECT *, coalesce(mono_ns, wall_ns) AS tick_ns, tick_ns - lag(tick_ns) OVER w AS dt,
         tx_bytes - lag(tx_bytes) OVER w AS d_tx, rx_bytes - lag(rx_bytes) OVER w AS d_rx
  FROM rail_samples
  WHERE run_id = run
  WINDOW w AS (PARTITION BY node, device, port, door ORDER BY coalesce(mono_ns, wall_ns))
)
SELECT node, device, port, door, arg_max(state, tick_ns) AS state, max(rate_gbps) / 8 AS line_gbs, count(*) AS samples,
       sum(d_tx) FILTER (WHERE d_tx >= 0) / nullif(sum(dt) FILTER (WHERE d_tx >= 0), 0) AS tx_mean_gbs,
       max(d_tx / nullif(dt, 0)) FILTER (WHERE d_tx >= 0) AS tx_peak_gbs,
       sum(d_rx) FILTER (WHERE d_rx >= 0) / nullif(sum(dt) FILTER (WHERE d_rx >= 0), 0) AS rx_mean_gbs,
       max(d_rx / nullif(dt, 0)) FILTER (WHERE d_rx >= 0) AS rx_peak_gbs,
       max(errors_total) - min(errors_total) AS errors, max(drops_total) - min(drops_total) AS drops,
       max(retransmits_total) - min(retransmits_total) AS retransmits,
       max(out_of_sequence_total) - min(out_of_sequence_total) AS out_of_sequence
FROM s
GROUP BY node, device, port, door
ORDER BY node, door <> 'rdma', device, port
