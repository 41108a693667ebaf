-- screen_threads(of_node, t0, t1, hz := 100): the busiest threads of a node in a window of its own clock, in percent of a core
SELECT pid, tid, any_value(name) AS name, arg_max(state, wall_ns) AS state, arg_max(last_cpu, wall_ns) AS last_cpu,
       100.0 * (max(user_ticks + system_ticks) - min(user_ticks + system_ticks)) / hz / nullif((max(wall_ns) - min(wall_ns)) / 1e9, 0) AS cpu_pct,
       max(involuntary_switches_total) - min(involuntary_switches_total) AS involuntary
FROM thread_samples
WHERE node = of_node AND wall_ns BETWEEN t0 AND t1
GROUP BY pid, tid
ORDER BY cpu_pct DESC NULLS LAST, pid, tid
LIMIT 40
