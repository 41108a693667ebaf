-- check_counts(): how many verdicts of each kind the newest preflight gave, and when and for what it was
SELECT any_value(run_id) AS run_id, max(wall_ns) AS wall_ns, count(DISTINCT node) AS nodes,
       count(*) FILTER (status = 'fail') AS fail, count(*) FILTER (status = 'warn') AS warn,
       count(*) FILTER (status = 'unknown') AS "unknown", count(*) FILTER (status = 'pass') AS pass,
       count(*) FILTER (status = 'not_applicable') AS not_applicable
FROM check_latest() HAVING count(*) > 0
