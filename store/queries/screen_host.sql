-- screen_host(t0, t1): each node's CPU shares, memory and load in a window of its own clock, newest and series
WITH cpu AS (
  SELECT node, cpu, wall_ns, idle_ticks - lag(idle_ticks) OVER w AS d_idle, iowait_ticks - lag(iowait_ticks) OVER w AS d_io,
         (coalesce(user_ticks, 0) + coalesce(system_ticks, 0) + coalesce(idle_ticks, 0) + coalesce(iowait_ticks, 0)
          + coalesce(irq_ticks, 0) + coalesce(steal_ticks, 0)) AS all_ticks,
         all_ticks - lag(all_ticks) OVER w AS d_all
  FROM cpu_samples WHERE wall_ns BETWEEN t0 AND t1
  WINDOW w AS (PARTITION BY node, cpu ORDER BY wall_ns)
), busy AS (
  SELECT node, cpu, wall_ns, CASE WHEN d_all > 0 THEN least(greatest(100.0 * (d_all - d_idle - coalesce(d_io, 0)) / d_all, 0), 100) END AS busy_pct FROM cpu
), cores AS (
  SELECT * FROM busy WHERE cpu IS NOT NULL QUALIFY row_number() OVER (PARTITION BY node, cpu ORDER BY wall_ns DESC) = 1
), hot AS (
  SELECT node, count(*) AS cores, max(busy_pct) AS hottest_pct, arg_max(cpu, busy_pct) AS hottest_cpu,
         count(*) FILTER (WHERE busy_pct >= 95) AS full_cores
  FROM cores GROUP BY node
), whole AS (
  SELECT node, arg_max(busy_pct, wall_ns) AS busy_pct, list(round(busy_pct, 1) ORDER BY wall_ns) AS busy_series
  FROM busy WHERE cpu IS NULL GROUP BY node
), host AS (
  SELECT * FROM host_samples WHERE wall_ns BETWEEN t0 AND t1
  QUALIFY row_number() OVER (PARTITION BY node ORDER BY wall_ns DESC) = 1
)
SELECT coalesce(h.node, w.node) AS node, h.load1, h.runnable, h.threads, h.mem_total_bytes, h.mem_available_bytes,
       h.swap_used_bytes, h.disk_free_bytes, h.wall_ns, w.busy_pct, w.busy_series, hot.cores, hot.hottest_cpu, hot.hottest_pct, hot.full_cores
FROM host h FULL JOIN whole w ON w.node = h.node LEFT JOIN hot ON hot.node = coalesce(h.node, w.node)
ORDER BY 1
