-- startup_stages(of_life, now_ns := 0): the stages of a start node by node: ranks that are in it and through it, seconds, and what is typical
WITH life AS (SELECT any_value(deployment) AS deployment, any_value(state) AS state, any_value(started_wall_ns) AS started_wall_ns,
                     any_value(ready_wall_ns) AS ready_wall_ns, any_value(ended_wall_ns) AS ended_wall_ns
              FROM lives WHERE life_id = of_life),
names AS (SELECT unnest(['process', 'rendezvous', 'nccl', 'weights', 'kv', 'graphs', 'warmup']) AS stage,
                 unnest([1, 2, 3, 4, 5, 6, 7]) AS ordinal),
nodes AS (SELECT node, rank AS node_rank FROM jobs WHERE life_id = of_life AND kind = 'server'),
marks AS (
    SELECT node, node_rank, stage, count(*) FILTER (begin_s IS NOT NULL) AS begun, count(*) FILTER (end_s IS NOT NULL) AS ended,
           min(begin_s) AS begin_s, max(end_s) AS end_s, list(rank ORDER BY rank) FILTER (end_s IS NULL AND rank IS NOT NULL) AS waiting
    FROM startup_marks([of_life]) GROUP BY node, node_rank, stage
), reached AS (SELECT node_rank, max(ordinal) AS furthest FROM startup_marks([of_life]) GROUP BY node_rank),
typical AS (FROM startup_typical((SELECT deployment FROM life), of_life))
SELECT n.node, n.node_rank, s.stage, s.ordinal, coalesce(m.begun, 0) AS begun, coalesce(m.ended, 0) AS ended, m.waiting,
       m.begin_s, m.end_s, t.end_s AS typical_s, t.lives AS typical_lives,
       CASE WHEN m.begun IS NULL AND (r.furthest > s.ordinal OR l.ready_wall_ns IS NOT NULL) THEN 'not told'
            WHEN m.begun IS NULL THEN 'to come'
            WHEN m.end_s IS NOT NULL AND m.waiting IS NULL THEN 'done'
            WHEN r.furthest > s.ordinal OR l.ready_wall_ns IS NOT NULL THEN 'done'
            WHEN l.state = 'gone' THEN 'failed here'
            ELSE 'now' END AS state
FROM nodes n CROSS JOIN names s CROSS JOIN life l
LEFT JOIN marks m ON m.node_rank = n.node_rank AND m.stage = s.stage
LEFT JOIN reached r ON r.node_rank = n.node_rank
LEFT JOIN typical t ON t.node_rank = n.node_rank AND t.stage = s.stage
UNION ALL
SELECT NULL, NULL, 'ready', 8, 1, CASE WHEN ready_wall_ns IS NULL THEN 0 ELSE 1 END, NULL, NULL,
       (ready_wall_ns - started_wall_ns) / 1e9, (SELECT end_s FROM typical WHERE stage = 'ready'),
       (SELECT lives FROM typical WHERE stage = 'ready'),
       CASE WHEN ready_wall_ns IS NOT NULL THEN 'done' WHEN state = 'gone' THEN 'failed here' ELSE 'to come' END
FROM life WHERE started_wall_ns IS NOT NULL
ORDER BY ordinal, node_rank
