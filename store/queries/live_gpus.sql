-- live_gpus(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): newest sample of each GPU in a window of the run's clock, and its utilisation since t0
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT g.node, g.gpu, g.uuid, g.name, g.util_pct, g.mem_util_pct, g.mem_used_bytes, g.mem_total_bytes, g.power_w,
         g.power_limit_w, g.temp_c, g.sm_mhz, g.mem_mhz, g.pstate, g.throttle, g.pcie_rx_bps, g.pcie_tx_bps,
         g.ecc_errors_total, g.wall_ns - coalesce(shifts[list_position(names, g.node)], 0) AS at_ns
  FROM gpu_samples g
  WHERE (run IS NULL OR g.run_id = run) AND g.wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), devices AS (
  SELECT arg_max(s, at_ns) AS newest, list(round(util_pct, 1) ORDER BY at_ns) AS util_series
  FROM s WHERE at_ns BETWEEN t0 AND t1 GROUP BY node, gpu
)
SELECT newest.*, (t1 - newest.at_ns) / 1e9 AS age_s, t1 - newest.at_ns > 5000000000 AS stale, util_series,
       median(newest.util_pct) OVER () AS peer_util_pct
FROM devices
ORDER BY newest.node, newest.gpu
