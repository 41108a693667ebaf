-- run_summary_attempts(run): the attempts of a run in order of work: case, state, outcome, where and when
SELECT attempt_id, ordinal, case_name, isl, osl, concurrency, request_rate, repeat, client, life_id, node, state, outcome,
       detail, flags, started_wall_ns, ended_wall_ns
FROM attempts
WHERE run_id = run
ORDER BY ordinal, repeat, attempt_id
