-- summary_gpus(run): each GPU over a whole run: utilisation, memory, power, temperature, and the reasons that held its clocks back
SELECT node, gpu, any_value(name) AS name, count(*) AS samples, avg(util_pct) AS util_mean_pct, max(util_pct) AS util_max_pct,
       max(mem_used_bytes) AS mem_used_max_bytes, max(mem_total_bytes) AS mem_total_bytes, avg(power_w) AS power_mean_w,
       max(power_w) AS power_max_w, max(temp_c) AS temp_max_c, min(sm_mhz) FILTER (WHERE util_pct > 0) AS sm_min_busy_mhz,
       list_sort(list_distinct(flatten(list(string_split(throttle, ',')) FILTER (WHERE throttle <> '')))) AS throttle
FROM gpu_samples
WHERE run_id = run
GROUP BY node, gpu
ORDER BY node, gpu
