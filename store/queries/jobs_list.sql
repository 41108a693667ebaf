-- jobs_list(): every detached job, newest first
SELECT j.job_id, j.run_id, j.life_id, j.attempt_id, j.node, j.kind, j.folder, j.rank, j.pid, j.state, j.exit_code,
       j.started_wall_ns, j.ended_wall_ns, j.ttl_s,
       (SELECT coalesce(sum(o."offset"), 0)::BIGINT FROM offsets o WHERE o.job_id = j.job_id) AS bytes_read
FROM jobs j
ORDER BY j.started_wall_ns DESC NULLS FIRST, j.job_id
