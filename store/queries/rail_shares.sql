-- rail_shares(run): what each rail moved in each attempt while it was loaded (steady, else all), its share of line rate and of its node, and what its error counters gained
WITH clock AS (
  SELECT node, shift_ns FROM live_clock(run)
), s AS (
  SELECT a.attempt_id, a.span, r.node, r.device, r.port, r.rate_gbps, r.tx_bytes, r.rx_bytes, r.errors_total, r.drops_total,
         r.retransmits_total, r.timeouts_total, r.out_of_sequence_total, r.cnp_total, r.ecn_total, r.rx_pause_total, r.tx_pause_total,
         coalesce(r.mono_ns, r.wall_ns) AS tick_ns
  FROM rail_samples r LEFT JOIN clock c ON c.node = r.node
  JOIN gpu_spans(run) a ON r.wall_ns - coalesce(c.shift_ns, 0) BETWEEN a.start_ns - 1000000000 AND a.end_ns + 1000000000
  WHERE r.run_id = run AND r.door = 'rdma'
), step AS (  -- what each counter gained; one that went back was reset, and that interval is left out
  SELECT *, tx_bytes - lag(tx_bytes) OVER w AS tx, rx_bytes - lag(rx_bytes) OVER w AS rx, tick_ns - lag(tick_ns) OVER w AS ns,
         errors_total - lag(errors_total) OVER w AS errors, drops_total - lag(drops_total) OVER w AS drops,
         retransmits_total - lag(retransmits_total) OVER w AS again, timeouts_total - lag(timeouts_total) OVER w AS late,
         out_of_sequence_total - lag(out_of_sequence_total) OVER w AS unordered, cnp_total - lag(cnp_total) OVER w AS cnp,
         ecn_total - lag(ecn_total) OVER w AS ecn
  FROM s WINDOW w AS (PARTITION BY attempt_id, node, device, port ORDER BY tick_ns)
), rail AS (
  SELECT attempt_id, any_value(span) AS span, node, device, max(rate_gbps) / 8 AS line_gbs, count(*) AS samples,
         sum(tx) FILTER (WHERE tx >= 0 AND rx >= 0)::BIGINT AS tx_bytes, sum(rx) FILTER (WHERE tx >= 0 AND rx >= 0)::BIGINT AS rx_bytes,
         sum(ns) FILTER (WHERE tx >= 0 AND rx >= 0) AS ns, count(*) FILTER (WHERE tx < 0 OR rx < 0) AS resets,
         sum(errors) FILTER (WHERE errors >= 0)::BIGINT AS errors, sum(drops) FILTER (WHERE drops >= 0)::BIGINT AS drops, sum(again) FILTER (WHERE again >= 0)::BIGINT AS retransmits,
         sum(late) FILTER (WHERE late >= 0)::BIGINT AS timeouts, sum(unordered) FILTER (WHERE unordered >= 0)::BIGINT AS out_of_sequence,
         sum(cnp) FILTER (WHERE cnp >= 0)::BIGINT AS cnp, sum(ecn) FILTER (WHERE ecn >= 0)::BIGINT AS ecn,
         max(rx_pause_total) - min(rx_pause_total) AS rx_pauses, max(tx_pause_total) - min(tx_pause_total) AS tx_pauses
  FROM step GROUP BY attempt_id, node, device
)
SELECT attempt_id, span, node, device, tx_bytes / nullif(ns, 0) AS tx_gbs, rx_bytes / nullif(ns, 0) AS rx_gbs, line_gbs,
       100.0 * greatest(tx_bytes, rx_bytes) / nullif(ns, 0) / line_gbs AS line_pct,
       100.0 * (tx_bytes + rx_bytes) / nullif(sum(tx_bytes + rx_bytes) OVER (PARTITION BY attempt_id, node), 0) AS node_pct,
       tx_bytes, rx_bytes, errors, drops, retransmits, timeouts, out_of_sequence, cnp, ecn, rx_pauses, tx_pauses, resets, samples
FROM rail ORDER BY attempt_id, node, device
