-- alert_retransmits(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): rails that had to send again, or whose acknowledgements timed out, in a window of the run's clock
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, device, port, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns, retransmits_total, timeouts_total, out_of_sequence_total, tx_packets + rx_packets AS packets
  FROM rail_samples WHERE run_id = run AND door = 'rdma' AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), step AS (
  SELECT node, device, at_ns, retransmits_total - lag(retransmits_total) OVER w AS again, timeouts_total - lag(timeouts_total) OVER w AS late,
         out_of_sequence_total - lag(out_of_sequence_total) OVER w AS unordered, packets - lag(packets) OVER w AS packets
  FROM s WHERE at_ns BETWEEN t0 AND t1 WINDOW w AS (PARTITION BY node, device, port ORDER BY at_ns)
)
SELECT node, device AS subject, min(at_ns) FILTER (WHERE again > 0 OR late > 0) AS first_ns,
       max(at_ns) FILTER (WHERE again > 0 OR late > 0) AS last_ns, count(*) FILTER (WHERE again > 0 OR late > 0) AS n, device,
       sum(again) FILTER (WHERE again >= 0)::BIGINT AS retransmits, sum(late) FILTER (WHERE late >= 0)::BIGINT AS timeouts,
       sum(unordered) FILTER (WHERE unordered >= 0)::BIGINT AS out_of_sequence,
       1e6 * sum(again) FILTER (WHERE again >= 0) / nullif(sum(packets) FILTER (WHERE packets >= 0), 0) AS per_million
FROM step GROUP BY node, device
HAVING coalesce(sum(late) FILTER (WHERE late >= 0), 0) >= 1 OR coalesce(sum(again) FILTER (WHERE again >= 0), 0) >= 20
ORDER BY node, device
