-- run_commands(run): every command of a run as executed, with its job's end
SELECT c.command_id, c.label, c.purpose, c.node, c.text, c.cwd, c.env, c.started_wall_ns,
       coalesce(c.ended_wall_ns, j.ended_wall_ns) AS ended_wall_ns, coalesce(c.exit_code, j.exit_code) AS exit_code,
       c.attempt_id, c.life_id, c.job_id
FROM commands c LEFT JOIN jobs j ON j.job_id = c.job_id
WHERE c.run_id = run
ORDER BY c.started_wall_ns, c.command_id
