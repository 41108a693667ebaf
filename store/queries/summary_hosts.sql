-- summary_hosts(run): each node over a whole run: its CPU share, its busiest core, memory and load
WITH cpu AS (
  SELECT node, cpu, wall_ns, idle_ticks + coalesce(iowait_ticks, 0) AS idle,
         coalesce(user_ticks, 0) + coalesce(system_ticks, 0) + coalesce(idle_ticks, 0) + coalesce(iowait_ticks, 0)
         + coalesce(irq_ticks, 0) + coalesce(steal_ticks, 0) AS ticks
  FROM cpu_samples WHERE run_id = run
), busy AS (
  SELECT node, cpu, 100.0 * (1 - (arg_max(idle, wall_ns) - arg_min(idle, wall_ns))
                                 / nullif(arg_max(ticks, wall_ns) - arg_min(ticks, wall_ns), 0)::DOUBLE) AS busy_pct
  FROM cpu GROUP BY node, cpu
), cores AS (
  SELECT node, max(busy_pct) FILTER (WHERE cpu IS NULL) AS cpu_mean_pct, max(busy_pct) FILTER (WHERE cpu IS NOT NULL) AS core_max_pct,
         arg_max(cpu, busy_pct) FILTER (WHERE cpu IS NOT NULL) AS core_max
  FROM busy GROUP BY node
)
SELECT h.node, count(*) AS samples, min(h.wall_ns) AS first_wall_ns, max(h.wall_ns) AS last_wall_ns, any_value(c.cpu_mean_pct) AS cpu_mean_pct,
       any_value(c.core_max) AS core_max, any_value(c.core_max_pct) AS core_max_pct, max(h.load1) AS load1_max,
       min(h.mem_available_bytes) AS mem_available_min_bytes, max(h.mem_total_bytes) AS mem_total_bytes
FROM host_samples h LEFT JOIN cores c ON c.node = h.node
WHERE h.run_id = run
GROUP BY h.node
ORDER BY h.node
