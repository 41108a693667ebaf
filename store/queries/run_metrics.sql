-- run_metrics(run): counts, rates and latency percentiles of every attempt of a run, a row for each window
SELECT a.run_id, a.ordinal, a.case_name, a.isl, a.osl, a.concurrency, a.repeat, a.life_id, a.state, a.outcome, m.*
FROM attempts a
JOIN metrics_of((SELECT list(attempt_id) FROM attempts WHERE run_id = run)) m USING (attempt_id)
WHERE a.run_id = run
ORDER BY a.ordinal, a.repeat, a.attempt_id, m."window"
