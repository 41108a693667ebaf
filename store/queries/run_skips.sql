-- run_skips(run): attempts of a run that operators asked to skip, and who asked first
SELECT params ->> 'attempt_id' AS attempt_id, arg_min(who, wall_ns) AS who
FROM orders
WHERE run_id = run AND kind = 'skip_attempt' AND state = 'accepted'
GROUP BY ALL
ORDER BY ALL
