-- engine_memory(run): device memory of the servers of a run, the fullest rank of each node: weights, KV pool and graphs as the engine's log states them, and what the device holds beside them (workspace, communication, fragmentation)
WITH told AS (
  SELECT e.node, json_extract(CASE WHEN json_valid(e.detail) THEN e.detail END, ['$.weights_bytes', '$.kv_bytes', '$.graph_bytes']) AS v
  FROM log_events e WHERE e.name = 'start_stage' AND e.job_id IN (SELECT j.job_id FROM run_server_jobs(run) j)
), stated AS (
  SELECT node, max(TRY_CAST(v[1] AS BIGINT)) AS weights_bytes, max(TRY_CAST(v[2] AS BIGINT)) AS kv_bytes, max(TRY_CAST(v[3] AS BIGINT)) AS graph_bytes
  FROM told GROUP BY node
), device AS (
  SELECT node, max(mem_used_bytes) AS used_bytes, max(mem_total_bytes) AS total_bytes FROM gpu_samples WHERE run_id = run GROUP BY node
)
SELECT coalesce(s.node, d.node) AS node, s.weights_bytes, s.kv_bytes, s.graph_bytes, d.used_bytes, d.total_bytes,
       CASE WHEN d.used_bytes >= s.weights_bytes + s.kv_bytes + coalesce(s.graph_bytes, 0)
            THEN d.used_bytes - s.weights_bytes - s.kv_bytes - coalesce(s.graph_bytes, 0) END AS other_bytes
FROM stated s FULL JOIN device d ON d.node = s.node ORDER BY 1
