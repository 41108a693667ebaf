-- screen_commands(run): the commands of a run in order of time, with label and exit code
SELECT command_id, purpose, label, node, attempt_id, life_id, job_id, text, cwd, started_wall_ns, ended_wall_ns, exit_code
FROM commands
WHERE run_id = run OR life_id IN (SELECT life_id FROM attempts WHERE run_id = run)
ORDER BY started_wall_ns NULLS LAST, command_id
