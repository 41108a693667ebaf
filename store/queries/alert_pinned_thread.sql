-- alert_pinned_thread(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): threads that filled a core in a window of the run's clock; of schedulers, cores and workers, which also spin when all is well, only beside GPUs that were not busy
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, pid, tid, name, process, role, run_ns_total, coalesce(mono_ns, wall_ns) AS tick_ns, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM thread_samples WHERE run_id = run AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), step AS (
  SELECT *, (run_ns_total - lag(run_ns_total) OVER w) / nullif(tick_ns - lag(tick_ns) OVER w, 0) AS share
  FROM s WHERE at_ns BETWEEN t0 AND t1 WINDOW w AS (PARTITION BY node, pid, tid ORDER BY tick_ns)
), gpus AS (
  SELECT node, avg(util_pct) AS util_pct FROM gpu_samples WHERE run_id = run AND util_pct IS NOT NULL AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts)) GROUP BY node
), served AS (
  SELECT max(running) AS running FROM engine_samples WHERE run_id = run AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
)
SELECT step.node, any_value(role) || ' ' || tid AS subject, min(at_ns) FILTER (WHERE share >= 0.95) AS first_ns,
       max(at_ns) FILTER (WHERE share >= 0.95) AS last_ns, count(*) FILTER (WHERE share >= 0.95) AS n, any_value(role) AS role,
       any_value(process) AS process, any_value(name) AS thread, 100.0 * avg(share) AS core_pct, any_value(gpus.util_pct) AS gpu_util_pct
FROM step LEFT JOIN gpus ON gpus.node = step.node, served
WHERE role <> 'other' AND served.running > 0
GROUP BY step.node, pid, tid
HAVING count(*) FILTER (WHERE share >= 0.95) >= 4 AND count(*) FILTER (WHERE share >= 0.95) >= 0.8 * count(share)
   AND (any_value(role) IN ('front end', 'detokenizer', 'tokenizer', 'router') OR any_value(gpus.util_pct) < 60)
ORDER BY step.node, subject
