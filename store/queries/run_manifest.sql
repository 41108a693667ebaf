-- run_manifest(run): the environment of a run as variables, newest value of each name, node and rank
SELECT name, arg_max(value, wall_ns) AS value, node, rank, arg_max(source, wall_ns) AS source, max(life_id) AS life_id
FROM variables
WHERE run_id = run
GROUP BY name, node, rank
ORDER BY name, node NULLS FIRST, rank NULLS FIRST
