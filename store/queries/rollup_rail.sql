-- rollup_rail(run, t0, t1, step): rows of rail_rollups for the samples of a window of the nodes' own clocks, by steps of so many seconds
WITH s AS (
  SELECT run_id, node, device, coalesce(port, 0) AS port, door, wall_ns, rate_gbps, coalesce(mono_ns, wall_ns) AS tick_ns, tx_bytes, rx_bytes,
         errors_total, drops_total, retransmits_total, coalesce(rx_pause_total, tx_pause_total) + coalesce(tx_pause_total, 0) AS pauses_total
  FROM rail_samples WHERE run_id = run AND wall_ns >= t0 - 15000000000 AND wall_ns < t1
), step AS (  -- a counter that went back was reset: that interval is counted and left out
  SELECT *, tick_ns - lag(tick_ns) OVER w AS ns, tx_bytes - lag(tx_bytes) OVER w AS tx, rx_bytes - lag(rx_bytes) OVER w AS rx,
         errors_total - lag(errors_total) OVER w AS errors, drops_total - lag(drops_total) OVER w AS drops,
         retransmits_total - lag(retransmits_total) OVER w AS again,
         pauses_total - lag(pauses_total IGNORE NULLS) OVER w AS pauses
  FROM s WINDOW w AS (PARTITION BY node, device, port, door ORDER BY tick_ns)
)
SELECT any_value(run_id) AS run_id, node, device, port, door, step::BIGINT AS step_s,
       wall_ns // (step * 1000000000::BIGINT) * (step * 1000000000::BIGINT) AS wall_ns, count(ns) AS n, max(rate_gbps) / 8 AS line_gbs,
       sum(tx) FILTER (WHERE tx >= 0 AND rx >= 0) / nullif(sum(ns) FILTER (WHERE tx >= 0 AND rx >= 0), 0) AS tx_gbs,
       sum(rx) FILTER (WHERE tx >= 0 AND rx >= 0) / nullif(sum(ns) FILTER (WHERE tx >= 0 AND rx >= 0), 0) AS rx_gbs,
       max(tx / nullif(ns, 0)) FILTER (WHERE tx >= 0) AS tx_gbs_max, max(rx / nullif(ns, 0)) FILTER (WHERE rx >= 0) AS rx_gbs_max,
       sum(errors) FILTER (WHERE errors >= 0)::BIGINT AS errors, sum(drops) FILTER (WHERE drops >= 0)::BIGINT AS drops, sum(again) FILTER (WHERE again >= 0)::BIGINT AS retransmits,
       sum(pauses) FILTER (WHERE pauses >= 0)::BIGINT AS pauses, count(*) FILTER (WHERE tx < 0 OR rx < 0) AS resets
FROM step WHERE step.wall_ns >= t0
GROUP BY node, device, port, door, step.wall_ns // (step * 1000000000::BIGINT)
