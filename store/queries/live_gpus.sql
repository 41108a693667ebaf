-- live_gpus(run, t0, t1, slack := 0): newest sample of each GPU in a window of the run's clock, and its utilisation since t0
WITH s AS (
  SELECT g.* EXCLUDE (run_id, mono_ns, source), g.wall_ns - coalesce(c.shift_ns, 0) AS at_ns
  FROM gpu_samples g
  LEFT JOIN live_clock(run) c ON c.node = g.node
  WHERE (run IS NULL OR g.run_id = run) AND g.wall_ns BETWEEN t0 - slack AND t1 + slack
), kept AS (
  SELECT * FROM s WHERE at_ns BETWEEN t0 AND t1
), newest AS (
  SELECT * FROM kept QUALIFY row_number() OVER (PARTITION BY node, gpu ORDER BY at_ns DESC) = 1
), series AS (
  SELECT node, gpu, list(round(util_pct, 1) ORDER BY at_ns) AS util_series FROM kept GROUP BY node, gpu
)
SELECT n.*, (t1 - n.at_ns) / 1e9 AS age_s, t1 - n.at_ns > 5000000000 AS stale, series.util_series,
       median(n.util_pct) OVER () AS peer_util_pct
FROM newest n JOIN series USING (node, gpu)
ORDER BY n.node, n.gpu
