-- live_logs(run, t0, t1, slack := 0, level := 0, from_node := NULL, needle := NULL, n := 400): the last n log lines of a window, all nodes interleaved by the run's clock
WITH s AS (
  SELECT l.node, l.rank, l.job_id, l.stream, l."offset" AS at_byte, l.level, l.text, l.truncated,
         l.wall_ns - coalesce(c.shift_ns, 0) AS at_ns,
         CASE upper(l.level[1]) WHEN 'D' THEN 10 WHEN 'T' THEN 10 WHEN 'W' THEN 30 WHEN 'E' THEN 40 WHEN 'C' THEN 50 WHEN 'F' THEN 50
              ELSE 20 END AS severity
  FROM log_lines l
  LEFT JOIN live_clock(run) c ON c.node = l.node
  WHERE (run IS NULL OR l.run_id = run) AND l.wall_ns BETWEEN t0 - slack AND t1 + slack
    AND (from_node IS NULL OR l.node = from_node) AND (needle IS NULL OR contains(lower(l.text), lower(needle)))
), newest AS (
  SELECT * FROM s WHERE at_ns BETWEEN t0 AND t1 AND severity >= level
  ORDER BY at_ns DESC, node DESC, job_id DESC, stream DESC, at_byte DESC LIMIT n
)
SELECT newest.* REPLACE (left(text, 2000) AS text), j.kind
FROM newest LEFT JOIN jobs j USING (job_id)
ORDER BY at_ns, newest.node, job_id, stream, at_byte
