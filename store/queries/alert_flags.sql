-- alert_flags(run): the marks that alerts leave on attempts of a run: one row an attempt and alert that held in it
SELECT unnest(from_json(numbers -> 'attempts', '["VARCHAR"]')) AS attempt_id, numbers ->> 'flag' AS flag, node, title, detail, severity
FROM findings WHERE run_id = run AND json_valid(numbers) AND numbers ->> 'flag' IS NOT NULL
ORDER BY attempt_id, flag, node
