-- live_gpus(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): newest sample of each GPU in a window of the run's clock, and its utilisation since t0
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT g.node, g.gpu, g.uuid, g.name, g.util_pct, g.mem_util_pct, g.mem_used_bytes, g.mem_total_bytes, g.power_w,
         g.power_limit_w, g.temp_c, g.sm_mhz, g.mem_mhz, g.pstate, g.throttle, g.pcie_rx_bps, g.pcie_tx_bps,
         g.ecc_errors_total, g.tensor_active_pct, g.dram_active_pct, g.missing,
         coalesce(g.source IN ('dcgm', 'nvidia-smi dmon'), false) AS beside, g.wall_ns - coalesce(shifts[list_position(names, g.node)], 0) AS at_ns
  FROM gpu_samples g
  WHERE (run IS NULL OR g.run_id = run) AND g.wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), devices AS (  -- PCIe and DCGM come by tools of their own, in rows without the rest
  SELECT arg_max(s, at_ns) FILTER (NOT beside) AS newest, list(round(util_pct, 1) ORDER BY at_ns) FILTER (NOT beside) AS util_series,
         arg_max(pcie_rx_bps, at_ns) AS rx_bps, arg_max(pcie_tx_bps, at_ns) AS tx_bps,
         arg_max(tensor_active_pct, at_ns) AS tensor_pct, arg_max(dram_active_pct, at_ns) AS dram_pct
  FROM s WHERE at_ns BETWEEN t0 AND t1 GROUP BY node, gpu HAVING newest IS NOT NULL
)
SELECT newest.node, newest.gpu, newest.uuid, newest.name, newest.util_pct, newest.mem_util_pct, newest.mem_used_bytes,
       newest.mem_total_bytes, newest.power_w, newest.power_limit_w, newest.temp_c, newest.sm_mhz, newest.mem_mhz, newest.pstate,
       newest.throttle, rx_bps AS pcie_rx_bps, tx_bps AS pcie_tx_bps, tensor_pct AS tensor_active_pct, dram_pct AS dram_active_pct,
       newest.ecc_errors_total, newest.missing, newest.at_ns, (t1 - newest.at_ns) / 1e9 AS age_s, t1 - newest.at_ns > 5000000000 AS stale, util_series,
       median(newest.util_pct) OVER () AS peer_util_pct
FROM devices
ORDER BY newest.node, newest.gpu
