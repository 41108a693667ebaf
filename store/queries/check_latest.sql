-- check_latest(): the verdicts of the newest preflight, worst first within each node; what all nodes share comes last
WITH newest AS (
    SELECT run_id FROM gates WHERE name = 'ssh' ORDER BY wall_ns DESC LIMIT 1
)
SELECT run_id, node, name, status, detail, fix, wall_ns, coalesce(node, '') || '/' || name AS key
FROM gates
WHERE run_id = (SELECT run_id FROM newest) AND life_id IS NULL
QUALIFY row_number() OVER (PARTITION BY node, name ORDER BY wall_ns DESC) = 1
ORDER BY node NULLS LAST, list_position(['fail', 'warn', 'unknown', 'pass', 'not_applicable'], status), name
