-- live_stage(run, until := 9000000000000000000): the newest thing that a run's logs said of themselves: what a server that starts is doing
SELECT name, node, rank, severity, detail, wall_ns
FROM log_events WHERE run_id = run AND wall_ns <= until
ORDER BY wall_ns DESC, job_id, stream, "offset" DESC
LIMIT 1
