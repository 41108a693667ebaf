-- startup_memory(of_life): device memory as the engine reported it at its start, each rank that told: bytes of weights, KV cache, graphs, and tokens of KV
WITH told AS (
    SELECT j.node, j.rank AS node_rank, coalesce(e.rank, TRY_CAST(json_extract_string(d, '$.rank') AS BIGINT)) AS rank,
           json_extract_string(d, '$.stage') AS stage, d, e.wall_ns
    FROM (SELECT *, TRY_CAST(detail AS JSON) AS d FROM log_events WHERE name = 'start_stage') e
    JOIN jobs j USING (job_id)
    WHERE j.life_id = of_life AND j.kind = 'server'
), figures AS (
    SELECT node, node_rank, rank,
           max(TRY_CAST(coalesce(json_extract_string(d, '$.weights_bytes'),
                                 CASE WHEN stage = 'load_weights_end' THEN json_extract_string(d, '$.used_bytes') END) AS BIGINT)) AS weights_bytes,
           max(TRY_CAST(coalesce(json_extract_string(d, '$.kv_bytes'),
                                 (TRY_CAST(json_extract_string(d, '$.k_bytes') AS BIGINT) + TRY_CAST(json_extract_string(d, '$.v_bytes') AS BIGINT))::VARCHAR) AS BIGINT)) AS kv_bytes,
           max(TRY_CAST(json_extract_string(d, '$.kv_tokens') AS BIGINT)) AS kv_tokens,
           max(TRY_CAST(coalesce(json_extract_string(d, '$.graph_bytes'),
                                 CASE WHEN stage = 'graph_capture_end' THEN json_extract_string(d, '$.used_bytes') END) AS BIGINT)) AS graph_bytes,
           max(TRY_CAST(json_extract_string(d, '$.activation_bytes') AS BIGINT)) AS activation_bytes,
           max(TRY_CAST(json_extract_string(d, '$.context_tokens') AS BIGINT)) AS context_tokens,
           max(TRY_CAST(json_extract_string(d, '$.max_running') AS BIGINT)) AS max_running,
           max(TRY_CAST(json_extract_string(d, '$.chunked_prefill_tokens') AS BIGINT)) AS chunked_prefill_tokens,
           max(json_extract_string(d, '$.dtype')) AS dtype, max(json_extract_string(d, '$.nccl_version')) AS nccl_version
    FROM told GROUP BY node, node_rank, rank
)
SELECT * FROM figures
WHERE coalesce(weights_bytes, kv_bytes, kv_tokens, graph_bytes, activation_bytes, context_tokens, max_running) IS NOT NULL
   OR dtype IS NOT NULL OR nccl_version IS NOT NULL
ORDER BY node_rank, rank NULLS FIRST
