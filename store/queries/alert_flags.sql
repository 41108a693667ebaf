-- alert_flags(run): the marks that alerts leave on attempts of a run: one row an attempt and alert that held in it
WITH told AS (
  SELECT *, CASE WHEN json_valid(numbers) THEN numbers::JSON END AS facts FROM findings WHERE run_id = run
)
SELECT unnest(from_json(json_extract(facts, '$.attempts'), '["VARCHAR"]')) AS attempt_id, json_extract_string(facts, '$.flag') AS flag,
       node, title, detail, severity
FROM told WHERE json_extract_string(facts, '$.flag') IS NOT NULL
ORDER BY attempt_id, flag, node
