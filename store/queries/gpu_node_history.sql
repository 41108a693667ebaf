-- gpu_node_history(run, t0, t1, step, of_node, names := []::VARCHAR[], shifts := []::BIGINT[]): the mean of a node's GPUs over a window of the run's clock by steps, with the least and the most of them
SELECT at_ns, count(*) AS gpus, avg(util_pct) AS util_pct, min(util_pct) AS util_min, max(util_pct) AS util_max, avg(sm_mhz) AS sm_mhz,
       min(sm_mhz) AS sm_mhz_min, sum(power_w) AS power_w, max(temp_c) AS temp_c
FROM gpu_history(run, t0, t1, step, of_node := of_node, names := names, shifts := shifts)
GROUP BY at_ns ORDER BY at_ns
