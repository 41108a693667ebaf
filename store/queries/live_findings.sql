-- live_findings(run, until := 9000000000000000000): what needs a look: open findings, gates that did not pass, warning and fatal log events; the worst first
WITH gate AS (
  SELECT * FROM gates WHERE run_id = run AND wall_ns <= until
  QUALIFY row_number() OVER (PARTITION BY node, name ORDER BY wall_ns DESC) = 1
), found AS (
  SELECT 'finding ' || finding_id AS key, CASE state WHEN 'open' THEN severity ELSE 'over' END AS severity, node,
         title || CASE state WHEN 'open' THEN '' ELSE ' (over)' END AS title, detail, next_ab AS next_step, first_wall_ns AS first_ns,
         last_wall_ns AS last_ns, count
  FROM findings WHERE run_id = run AND state IN ('open', 'cleared') AND first_wall_ns <= until
  UNION ALL
  SELECT 'gate ' || name || ' ' || coalesce(node, ''), status, node, 'gate ' || name || ' ' || status, detail, fix, wall_ns, wall_ns, 1
  FROM gate WHERE status NOT IN ('pass', 'not_applicable')
  UNION ALL
  SELECT 'event ' || name || ' ' || node, max(severity), node, 'log: ' || name, arg_max(detail, wall_ns), NULL,
         min(wall_ns), max(wall_ns), count(*)
  FROM log_events e
  WHERE severity IN ('warn', 'fatal') AND wall_ns <= until  -- those of the second line are told by alerts
    AND name NOT IN ('xid', 'gpu_lost', 'source_failed', 'source_hung', 'driver_mismatch', 'driver_unavailable', 'retract', 'preempt')
    AND (run_id = run OR wall_ns >= (SELECT min(r.created_wall_ns) FROM runs r WHERE r.run_id = run)
                         AND job_id IN (SELECT j.job_id FROM run_server_jobs(run) j))
  GROUP BY name, node, severity
)
SELECT * FROM found
ORDER BY list_position(['fatal', 'fail', 'bad', 'warn', 'unknown', 'over'], severity) NULLS LAST, last_ns DESC, key
LIMIT 50
