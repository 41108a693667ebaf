-- gpu_shares(run): how much of its GPUs and their PCIe each attempt used while it was loaded (steady, else all), in percent
WITH clock AS (
  SELECT node, shift_ns FROM live_clock(run)
), s AS (
  SELECT a.attempt_id, a.span, (a.end_ns - a.start_ns) / 1e9 AS span_s, g.node, g.gpu, g.util_pct, g.tensor_active_pct, g.dram_active_pct,
         g.pcie_rx_bps, g.pcie_tx_bps, g.pcie_gen, g.pcie_width, g.throttle, g.throttled_us_total, g.power_w,
         g.wall_ns - coalesce(c.shift_ns, 0) AS at_ns
  FROM gpu_samples g LEFT JOIN clock c ON c.node = g.node
  JOIN gpu_spans(run) a ON g.wall_ns - coalesce(c.shift_ns, 0) BETWEEN a.start_ns AND a.end_ns
  WHERE g.run_id = run
), device AS (  -- GB/s of one PCIe lane by generation, after its line code
  SELECT attempt_id, span, span_s, node, gpu, avg(util_pct) AS util_pct, count(util_pct) AS n, avg(tensor_active_pct) AS tensor_pct,
         avg(dram_active_pct) AS dram_pct, avg(pcie_rx_bps) / 1e9 AS pcie_rx_gbs, avg(pcie_tx_bps) / 1e9 AS pcie_tx_gbs,
         [0.25, 0.5, 0.985, 1.969, 3.938, 7.563][max(pcie_gen)] * max(pcie_width) AS pcie_line_gbs, sum(power_w) / nullif(count(power_w), 0) AS power_w,
         CASE WHEN max(throttled_us_total) IS NOT NULL AND max(at_ns) > min(at_ns)
              THEN least(100, 1e5 * greatest(arg_max(throttled_us_total, at_ns) - arg_min(throttled_us_total, at_ns), 0) / (max(at_ns) - min(at_ns))) END AS throttled_pct
  FROM s GROUP BY attempt_id, span, span_s, node, gpu
)
SELECT attempt_id, any_value(span) AS span, any_value(span_s) AS span_s, count(*) FILTER (WHERE n > 0) AS gpus, avg(util_pct) AS util_pct,
       min(util_pct) AS least_pct, arg_min(node || ' GPU ' || gpu, util_pct) AS least_gpu, max(util_pct) AS most_pct,
       avg(tensor_pct) AS tensor_pct, avg(dram_pct) AS dram_pct, sum(power_w) AS power_w,
       avg(pcie_rx_gbs) AS pcie_rx_gbs, avg(pcie_tx_gbs) AS pcie_tx_gbs, 100.0 * avg(greatest(pcie_rx_gbs, pcie_tx_gbs) / pcie_line_gbs) AS pcie_pct,
       max(throttled_pct) AS throttled_pct, sum(n) AS samples,
       least(100.0, 100.0 * sum(n) / nullif(count(*) FILTER (WHERE n > 0) * any_value(span_s), 0)) AS covered_pct
FROM device GROUP BY attempt_id ORDER BY attempt_id
