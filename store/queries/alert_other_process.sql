-- alert_other_process(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): processes that are not our server's and held GPU memory, in a window of the run's clock
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH server AS (  -- processes of our servers, as the threads probe knows them
  SELECT DISTINCT node, pid FROM thread_samples WHERE run_id = run AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), s AS (
  SELECT node, pid, name, gpu_uuid, mem_used_bytes, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns FROM gpu_processes WHERE run_id = run AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
)
SELECT node, 'pid ' || pid AS subject, min(at_ns) AS first_ns, max(at_ns) AS last_ns, count(DISTINCT at_ns) AS n, pid,
       any_value(name) AS process, count(DISTINCT gpu_uuid) AS gpus, max(mem_used_bytes) AS mem_bytes
FROM s WHERE at_ns BETWEEN t0 AND t1 AND node IN (SELECT node FROM server) AND (node, pid) NOT IN (FROM server) AND coalesce(mem_used_bytes, 1) > 0
GROUP BY node, pid HAVING count(DISTINCT at_ns) >= 4 ORDER BY node, pid
