-- ab_variables(runs, lives): the environment of one side of a comparison: what its server lives reported or were given, else what its runs were
WITH known AS (
    SELECT v.name, v.node, v.rank, v.value, v.source, v.wall_ns, v.life_id IS NOT NULL AS own
    FROM variables v
    WHERE v.run_id IN (SELECT unnest(runs)) AND (v.life_id IS NULL OR v.life_id IN (SELECT unnest(lives)))
       OR v.life_id IN (SELECT unnest(lives))
), nearest AS (
    FROM known
    QUALIFY own = bool_or(own) OVER (PARTITION BY name)
)
SELECT name, node, rank, arg_max(value, wall_ns) AS value, arg_max(source, wall_ns) AS source
FROM nearest
GROUP BY name, node, rank
ORDER BY name, node NULLS FIRST, rank NULLS FIRST
