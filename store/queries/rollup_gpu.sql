-- rollup_gpu(run, t0, t1, step): rows of gpu_rollups for the samples of a window of the nodes' own clocks, by steps of so many seconds
SELECT run_id, node, gpu, step::BIGINT AS step_s, wall_ns // (step * 1000000000::BIGINT) * (step * 1000000000::BIGINT) AS wall_ns,
       count(*) FILTER (WHERE util_pct IS NOT NULL OR mem_used_bytes IS NOT NULL) AS n, avg(util_pct) AS util_avg, min(util_pct) AS util_min,
       max(util_pct) AS util_max, max(mem_used_bytes) AS mem_used_bytes, avg(power_w) AS power_avg, max(temp_c) AS temp_max,
       avg(sm_mhz) AS sm_mhz_avg, min(sm_mhz) AS sm_mhz_min, avg(pcie_rx_bps) AS pcie_rx_bps, avg(pcie_tx_bps) AS pcie_tx_bps,
       avg(tensor_active_pct) AS tensor_pct, avg(dram_active_pct) AS dram_pct, count(*) FILTER (WHERE throttle <> '') AS throttled
FROM gpu_samples s
WHERE s.run_id = run AND s.wall_ns >= t0 AND s.wall_ns < t1
GROUP BY run_id, node, gpu, s.wall_ns // (step * 1000000000::BIGINT)
