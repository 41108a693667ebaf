-- alert_gpu_lost(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): GPUs that did not answer in a window of the run's clock, by their rows without figures, else by what tools and the kernel said
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH rows_of AS (
  SELECT node, 'GPU ' || gpu AS subject, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns, missing AS said
  FROM gpu_samples WHERE run_id = run AND missing LIKE 'all: %' AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), told AS (
  SELECT node, coalesce(nullif(regexp_extract(detail, '[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f.]+'), ''), 'a GPU') AS subject,
         wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns, detail AS said
  FROM log_events WHERE run_id = run AND name = 'gpu_lost' AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), either AS (
  FROM rows_of UNION ALL FROM told WHERE node NOT IN (SELECT node FROM rows_of)
)
SELECT node, subject, min(at_ns) AS first_ns, max(at_ns) AS last_ns, count(*) AS n, arg_max(said, at_ns) AS said
FROM either WHERE at_ns BETWEEN t0 AND t1 GROUP BY node, subject ORDER BY node, subject
