-- startup_typical(of_deployment, but): how long each stage took on each node when this deployment came up before, seconds
WITH past AS (
    SELECT list(life_id) AS ids FROM (
        SELECT life_id FROM lives
        WHERE deployment = of_deployment AND life_id <> but AND ready_wall_ns IS NOT NULL AND NOT coalesce(external, false)
        ORDER BY started_wall_ns DESC LIMIT 10)
), marks AS (
    SELECT m.life_id, m.node_rank, m.stage, m.ordinal, max(m.end_s) AS end_s, count(DISTINCT m.rank) AS ranks
    FROM startup_marks((SELECT coalesce(ids, []) FROM past)) m GROUP BY ALL
)
SELECT node_rank, stage, ordinal, median(end_s) AS end_s, max(ranks) AS ranks, count(*) AS lives
FROM marks GROUP BY node_rank, stage, ordinal
UNION ALL
SELECT NULL, 'ready', 8, median((ready_wall_ns - started_wall_ns) / 1e9), NULL, count(*)
FROM lives WHERE life_id IN (SELECT unnest(coalesce(ids, [])) FROM past)
HAVING count(*) > 0
ORDER BY ordinal, node_rank
