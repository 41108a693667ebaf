-- alert_disk(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): nodes whose disk under twinrail's folder was nearly full, in a window of the run's clock: less than 2 GiB or 2 % free
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, disk_free_bytes, disk_total_bytes, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns
  FROM host_samples WHERE run_id = run AND disk_free_bytes IS NOT NULL AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
)
SELECT node, 'disk' AS subject, min(at_ns) AS first_ns, max(at_ns) AS last_ns, count(*) AS n, arg_max(disk_free_bytes, at_ns) AS free_bytes,
       any_value(disk_total_bytes) AS total_bytes
FROM s WHERE at_ns BETWEEN t0 AND t1 AND (disk_free_bytes < 2147483648 OR disk_free_bytes < 0.02 * disk_total_bytes)
GROUP BY node ORDER BY node
