-- gpu_holders(run, t0, t1, of_node, names := []::VARCHAR[], shifts := []::BIGINT[]): the processes that held memory on a node's GPUs, newest of a window of the run's clock
WITH s AS (
  SELECT pid, name, gpu_uuid, mem_used_bytes, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM gpu_processes WHERE run_id = run AND node = of_node AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), server AS (  -- processes of our servers, as the threads probe knows them
  SELECT DISTINCT pid FROM thread_samples WHERE run_id = run AND node = of_node
    AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), newest AS (
  SELECT * FROM s WHERE at_ns BETWEEN t0 AND t1 QUALIFY at_ns = max(at_ns) OVER ()
)
SELECT pid, any_value(name) AS name, count(DISTINCT gpu_uuid) AS gpus, sum(mem_used_bytes)::BIGINT AS bytes, CASE WHEN EXISTS (FROM server) THEN pid IN (FROM server) END AS ours
FROM newest GROUP BY pid ORDER BY bytes DESC NULLS LAST, pid
