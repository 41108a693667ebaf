-- screen_job_tail(job, n := 200): the last lines of a job's output
SELECT node, rank, stream, level, text, truncated, wall_ns, at_byte FROM (
  SELECT node, rank, stream, level, left(text, 2000) AS text, truncated, wall_ns, "offset" AS at_byte
  FROM log_lines WHERE job_id = job ORDER BY wall_ns DESC, "offset" DESC LIMIT n
) ORDER BY wall_ns, at_byte
