-- run_progress(run): how far a run is: attempts done and in all, the one that is on, its phase, the server's state
SELECT r.state, r.outcome, r.detail,
       (SELECT count(*) FROM attempts a WHERE a.run_id = run AND a.state <> 'void') AS attempts,
       (SELECT count(*) FROM attempts a WHERE a.run_id = run AND a.state = 'done') AS done,
       c.case_name, c.repeat,
       (SELECT arg_max(p.name, p.start_wall_ns) FROM phases p WHERE p.attempt_id = c.attempt_id) AS phase,
       (SELECT 'server ' || arg_max(l.state, l.started_wall_ns) FROM lives l WHERE l.run_id = run) AS life_state
FROM runs r
LEFT JOIN (
    SELECT attempt_id, case_name, repeat FROM attempts WHERE run_id = run AND state = 'running' ORDER BY ordinal LIMIT 1
) c ON true
WHERE r.run_id = run
