-- startup_marks(of_lives): when each rank began and ended each stage of a start, in seconds since its process, on its node's clock
WITH said AS (
    SELECT j.life_id, j.node, j.rank AS node_rank, j.started_wall_ns, e.name, e.wall_ns,
           coalesce(e.rank, TRY_CAST(json_extract_string(TRY_CAST(e.detail AS JSON), '$.rank') AS BIGINT)) AS named_rank,
           CASE WHEN e.name = 'ready' THEN 'ready' WHEN e.name = 'nccl_init' THEN 'nccl_init'
                ELSE json_extract_string(TRY_CAST(e.detail AS JSON), '$.stage') END AS raw,
           json_extract_string(TRY_CAST(e.detail AS JSON), '$.phase') AS phase,
           TRY_CAST(json_extract_string(TRY_CAST(e.detail AS JSON), '$.nranks') AS BIGINT) AS nranks,
           TRY_CAST(json_extract_string(TRY_CAST(e.detail AS JSON), '$.gpu') AS BIGINT) AS gpu
    FROM log_events e JOIN jobs j USING (job_id)
    WHERE j.life_id IN (SELECT unnest(of_lives)) AND j.kind = 'server' AND e.name IN ('start_stage', 'ready', 'nccl_init')
), sized AS (
    SELECT *, max(nranks) OVER (PARTITION BY life_id) AS world, max(gpu) OVER (PARTITION BY life_id) + 1 AS local
    FROM said
), placed AS (  -- a communicator of all ranks names them; in a smaller one the GPU of the node does
    SELECT life_id, node, node_rank, started_wall_ns, wall_ns, raw, phase,
           CASE WHEN raw <> 'nccl_init' THEN named_rank
                WHEN nranks = world THEN named_rank ELSE node_rank * local + gpu END AS rank
    FROM sized
), marked AS (
    SELECT p.*, m.stage, m.ordinal, m.edge
    FROM placed p JOIN (
        SELECT unnest(['arguments', 'engine_init', 'distributed_init_begin', 'rank_assigned', 'distributed_init',
                       'nccl_init', 'load_weights_begin', 'load_weights', 'load_weights_end', 'compile', 'memory_profile',
                       'kv_memory', 'kv_cache', 'memory_pool_end', 'limits', 'graph_capture_begin', 'graph_memory',
                       'graph_capture_end', 'engine_ready', 'http_start', 'ready']) AS raw,
               unnest(['process', 'process', 'rendezvous', 'rendezvous', 'rendezvous',
                       'nccl', 'weights', 'weights', 'weights', 'kv', 'kv',
                       'kv', 'kv', 'kv', 'kv', 'graphs', 'graphs',
                       'graphs', 'warmup', 'warmup', 'warmup']) AS stage,
               unnest([1, 1, 2, 2, 2, 3, 4, 4, 4, 5, 5, 5, 5, 5, 5, 6, 6, 6, 7, 7, 7]) AS ordinal,
               unnest(['end', 'end', 'begin', 'end', 'end', 'nccl', 'begin', 'end', 'end', 'begin', 'begin',
                       'end', 'end', 'end', 'end', 'begin', 'end', 'end', 'begin', 'begin', 'end']) AS edge
    ) m USING (raw)
), processes AS (
    SELECT j.life_id, j.node, j.rank AS node_rank, NULL::BIGINT AS rank, 'process' AS stage, 1 AS ordinal,
           0.0 AS begin_s, NULL::DOUBLE AS end_s
    FROM jobs j WHERE j.life_id IN (SELECT unnest(of_lives)) AND j.kind = 'server'
), marks AS (
    SELECT life_id, node, node_rank, rank, stage, ordinal,
           greatest(min(wall_ns) - any_value(started_wall_ns), 0) / 1e9 AS begin_s,
           CASE WHEN count(*) FILTER (edge = 'nccl' AND phase = 'START') > count(*) FILTER (edge = 'nccl' AND phase = 'COMPLETE')
                  OR count(*) FILTER (edge = 'end' OR phase = 'COMPLETE') = 0 THEN NULL  -- greatest() skips NULL
                ELSE greatest(max(wall_ns) FILTER (edge = 'end' OR phase = 'COMPLETE') - any_value(started_wall_ns), 0) / 1e9
           END AS end_s
    FROM marked GROUP BY life_id, node, node_rank, rank, stage, ordinal
)
SELECT life_id, node, node_rank, rank, stage, ordinal, min(begin_s) AS begin_s, max(end_s) AS end_s
FROM (FROM marks UNION ALL FROM processes)
GROUP BY ALL
