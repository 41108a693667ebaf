-- thread_top(run, t0, t1, of_node := NULL, names := []::VARCHAR[], shifts := []::BIGINT[], n := 200): the busiest threads of the servers' processes in a window of the run's clock, and how long they waited for a core
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT t.*, coalesce(t.mono_ns, t.wall_ns) AS tick_ns, t.wall_ns - coalesce(shifts[list_position(names, t.node)], 0) AS moment
  FROM thread_samples t
  WHERE t.run_id = run AND t.wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts)) AND (of_node IS NULL OR t.node = of_node)
), step AS (
  SELECT *, 100.0 * (run_ns_total - lag(run_ns_total) OVER w) / nullif(tick_ns - lag(tick_ns) OVER w, 0) AS core_pct
  FROM s WHERE moment BETWEEN t0 AND t1 WINDOW w AS (PARTITION BY node, pid, tid ORDER BY tick_ns)
)
SELECT node, pid, tid, arg_max(name, moment) AS name, arg_max(process, moment) AS process, arg_max(role, moment) AS role, arg_max(state, moment) AS state,
       arg_max(last_cpu, moment) AS last_cpu, count(DISTINCT last_cpu) AS cpus,
       100.0 * (max(run_ns_total) - min(run_ns_total)) / nullif(max(tick_ns) - min(tick_ns), 0) AS core_pct, max(core_pct) AS peak_pct,
       100.0 * (max(wait_ns_total) - min(wait_ns_total)) / nullif(max(tick_ns) - min(tick_ns), 0) AS wait_pct,
       (max(voluntary_switches_total) - min(voluntary_switches_total)) * 1e9 / nullif(max(tick_ns) - min(tick_ns), 0) AS voluntary_per_s,
       (max(involuntary_switches_total) - min(involuntary_switches_total)) * 1e9 / nullif(max(tick_ns) - min(tick_ns), 0) AS involuntary_per_s,
       max(minor_faults_total) - min(minor_faults_total) AS minor_faults, max(major_faults_total) - min(major_faults_total) AS major_faults,
       list(round(core_pct, 1) ORDER BY moment) FILTER (WHERE core_pct IS NOT NULL) AS series, count(*) AS samples
FROM step GROUP BY node, pid, tid ORDER BY core_pct DESC NULLS LAST, node, pid, tid LIMIT n
