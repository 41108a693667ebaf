-- summary_events(run): what the logs of a run's probes and servers told within its time, by node and name, the worst first
SELECT e.node, e.name, e.severity, count(*) AS count, min(e.wall_ns) AS first_wall_ns, max(e.wall_ns) AS last_wall_ns,
       arg_max(e.detail, e.wall_ns) AS detail
FROM log_events e, runs r
WHERE r.run_id = run AND (e.run_id = run OR e.job_id IN (SELECT s.job_id FROM run_server_jobs(run) s))
  AND e.wall_ns BETWEEN r.created_wall_ns AND coalesce(r.ended_wall_ns, 9000000000000000000)
GROUP BY e.node, e.name, e.severity
ORDER BY list_position(['fatal', 'warn', 'info'], e.severity), count DESC, e.node, e.name
