-- run_attempts(run): attempts of a run in the order of work
SELECT * FROM attempts WHERE run_id = run ORDER BY ordinal, attempt_id
