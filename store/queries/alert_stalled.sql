-- alert_stalled(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[], still_for_s := 30): engines that had requests running and moved no token for at least still_s at the end of their samples, in a window of the run's clock
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, dp_rank, running, generation_tokens_total + coalesce(prompt_tokens_total, 0) AS tokens, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM engine_samples WHERE run_id = run AND source = 'metrics' AND running IS NOT NULL AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), step AS (
  SELECT *, running = 0 OR tokens IS DISTINCT FROM lag(tokens) OVER (PARTITION BY node, dp_rank ORDER BY at_ns) AS moved
  FROM s WHERE at_ns BETWEEN t0 AND t1
), engine AS (
  SELECT node, dp_rank, max(at_ns) FILTER (WHERE moved) AS first_ns, max(at_ns) AS last_ns, arg_max(running, at_ns) AS running FROM step GROUP BY node, dp_rank
)
SELECT node, 'engine' || coalesce(' DP ' || dp_rank, '') AS subject, first_ns, last_ns, 1 AS n, running, (last_ns - first_ns) / 1e9 AS still_s
FROM engine WHERE last_ns - first_ns >= still_for_s * 1000000000::BIGINT AND running > 0 ORDER BY node, subject
