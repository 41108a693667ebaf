-- run_server_jobs(run): jobs of the servers that belong to a run's story: those it started, those its attempts ran against, and for a watch all that lived at its time
SELECT j.job_id, j.life_id
FROM runs r, jobs j LEFT JOIN lives l ON l.life_id = j.life_id
WHERE r.run_id = run AND j.kind = 'server' AND (
    j.run_id = run
    OR j.life_id IN (SELECT a.life_id FROM attempts a WHERE a.run_id = run)
    OR r.kind = 'watch' AND (r.deployment IS NULL OR l.deployment = r.deployment)
       AND coalesce(l.ended_wall_ns, 9000000000000000000) >= r.created_wall_ns
       AND coalesce(l.started_wall_ns, 0) <= coalesce(r.ended_wall_ns, 9000000000000000000)
)
