-- rollup_growth(t0, t1): rows of each table of samples and logs, in all, of a window, and of finished runs: what grows, and what a retention by age would free
WITH t AS (
  SELECT 'gpu_samples' AS name, run_id, wall_ns FROM gpu_samples UNION ALL SELECT 'rail_samples', run_id, wall_ns FROM rail_samples
  UNION ALL SELECT 'cpu_samples', run_id, wall_ns FROM cpu_samples UNION ALL SELECT 'host_samples', run_id, wall_ns FROM host_samples
  UNION ALL SELECT 'thread_samples', run_id, wall_ns FROM thread_samples UNION ALL SELECT 'numa_samples', run_id, wall_ns FROM numa_samples
  UNION ALL SELECT 'engine_samples', run_id, wall_ns FROM engine_samples UNION ALL SELECT 'gpu_processes', run_id, wall_ns FROM gpu_processes
  UNION ALL SELECT 'gpu_rollups', run_id, wall_ns FROM gpu_rollups UNION ALL SELECT 'rail_rollups', run_id, wall_ns FROM rail_rollups
  UNION ALL SELECT 'log_lines', run_id, wall_ns FROM log_lines
), done AS (
  SELECT run_id FROM runs WHERE state = 'done'
)
SELECT name, count(*) AS rows, count(*) FILTER (WHERE wall_ns BETWEEN t0 AND t1) AS window_rows,
       count(*) FILTER (WHERE wall_ns < t0 AND run_id IN (FROM done)) AS old_rows, min(wall_ns) AS first_ns, max(wall_ns) AS last_ns
FROM t GROUP BY name ORDER BY rows DESC, name
