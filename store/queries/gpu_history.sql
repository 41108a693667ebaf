-- gpu_history(run, t0, t1, step, of_node := NULL, of_gpu := NULL, names := []::VARCHAR[], shifts := []::BIGINT[]): GPUs over a window of the run's clock by steps of so many seconds: from roll-ups for steps of 10 s and more
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says); step: 1 to 9, or a multiple of 10
WITH unit AS (
  SELECT CASE WHEN step >= 60 AND step % 60 = 0 THEN 60 WHEN step >= 10 THEN 10 ELSE 0 END AS s
), rolled AS (
  SELECT r.* FROM gpu_rollups r, unit
  WHERE step >= 10 AND r.run_id = run AND r.step_s = unit.s AND r.wall_ns BETWEEN t0 + least(0, list_min(shifts)) - 60000000000 AND t1 + greatest(0, list_max(shifts))
    AND (of_node IS NULL OR r.node = of_node) AND (of_gpu IS NULL OR r.gpu = of_gpu)
), until AS (
  SELECT node, max(wall_ns) + (SELECT s FROM unit) * 1000000000::BIGINT AS ns FROM rolled GROUP BY node
), fresh AS (  -- what is not rolled up yet
  SELECT s.node, s.gpu, s.wall_ns, s.util_pct, s.mem_used_bytes, s.power_w, s.temp_c, s.sm_mhz, s.pcie_rx_bps, s.pcie_tx_bps,
         s.tensor_active_pct, s.dram_active_pct, s.throttle
  FROM gpu_samples s LEFT JOIN until u ON u.node = s.node
  WHERE s.run_id = run AND s.wall_ns BETWEEN greatest(t0 + least(0, list_min(shifts)), coalesce((SELECT min(ns) FROM until), 0)) AND t1 + greatest(0, list_max(shifts))
    AND s.wall_ns >= coalesce(u.ns, 0) AND (of_node IS NULL OR s.node = of_node) AND (of_gpu IS NULL OR s.gpu = of_gpu)
), either AS (
  SELECT node, gpu, wall_ns, n, util_avg, util_min, util_max, mem_used_bytes, power_avg, temp_max, sm_mhz_avg, sm_mhz_min,
         pcie_rx_bps, pcie_tx_bps, tensor_pct, dram_pct, throttled FROM rolled
  UNION ALL
  SELECT node, gpu, wall_ns, 1, util_pct, util_pct, util_pct, mem_used_bytes, power_w, temp_c, sm_mhz, sm_mhz, pcie_rx_bps, pcie_tx_bps,
         tensor_active_pct, dram_active_pct, CASE WHEN throttle <> '' THEN 1 ELSE 0 END FROM fresh
), placed AS (
  SELECT *, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS moment FROM either
)
SELECT node, gpu, moment // (step * 1000000000::BIGINT) * (step * 1000000000::BIGINT) AS at_ns, sum(n) FILTER (WHERE util_avg IS NOT NULL) AS n,
       sum(util_avg * n) / nullif(sum(n) FILTER (WHERE util_avg IS NOT NULL), 0) AS util_pct, min(util_min) AS util_min, max(util_max) AS util_max,
       max(mem_used_bytes) AS mem_used_bytes, avg(power_avg) AS power_w, max(temp_max) AS temp_c, avg(sm_mhz_avg) AS sm_mhz, min(sm_mhz_min) AS sm_mhz_min,
       avg(pcie_rx_bps) AS pcie_rx_bps, avg(pcie_tx_bps) AS pcie_tx_bps, avg(tensor_pct) AS tensor_pct, avg(dram_pct) AS dram_pct, sum(throttled) AS throttled
FROM placed WHERE moment BETWEEN t0 AND t1
GROUP BY node, gpu, moment // (step * 1000000000::BIGINT) ORDER BY node, gpu, at_ns
