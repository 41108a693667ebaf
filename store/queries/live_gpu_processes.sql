-- live_gpu_processes(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): the processes with memory on each GPU at their node's newest look in a window of the run's clock, the largest first
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH p AS (
  SELECT node, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns, gpu_uuid, pid, name, mem_used_bytes, ours
  FROM gpu_processes
  WHERE (run IS NULL OR run_id = run) AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
)
SELECT * FROM p
WHERE at_ns BETWEEN t0 AND t1
QUALIFY at_ns = max(at_ns) OVER (PARTITION BY node)
ORDER BY node, gpu_uuid, mem_used_bytes DESC NULLS LAST, pid
