-- live_logs(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[], level := 0, from_node := NULL, needle := NULL, n := 400, first := false, edge := NULL): the last n log lines of a window (or its first n), all nodes interleaved by the run's clock
-- edge: of the lines at t1 itself only those up to this byte (with `first`: of those at t0 only the ones after it), to read on where many came at once
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT l.node, l.rank, l.job_id, l.stream, l."offset" AS at_byte, l.level, l.text, l.truncated,
         l.wall_ns - coalesce(shifts[list_position(names, l.node)], 0) AS at_ns,
         CASE upper(l.level[1]) WHEN 'D' THEN 10 WHEN 'T' THEN 10 WHEN 'W' THEN 30 WHEN 'E' THEN 40 WHEN 'C' THEN 50 WHEN 'F' THEN 50
              ELSE 20 END AS severity
  FROM log_lines l
  WHERE (run IS NULL OR l.run_id = run OR l.job_id IN (SELECT j.job_id FROM run_server_jobs(run) j)) AND l.wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
    AND (from_node IS NULL OR l.node = from_node) AND (needle IS NULL OR contains(lower(l.text), lower(needle)))
), newest AS (
  SELECT * FROM s
  WHERE at_ns BETWEEN t0 AND t1 AND severity >= level
    AND (edge IS NULL OR CASE WHEN first THEN at_ns > t0 OR at_byte > edge ELSE at_ns < t1 OR at_byte <= edge END)
  ORDER BY CASE WHEN first THEN at_ns ELSE -at_ns END, CASE WHEN first THEN at_byte ELSE -at_byte END, node, job_id, stream
  LIMIT n
)
SELECT newest.* REPLACE (left(text, 2000) AS text), j.kind
FROM newest LEFT JOIN jobs j USING (job_id)
ORDER BY at_ns, at_byte, newest.node, job_id, stream
