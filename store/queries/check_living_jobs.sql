-- check_living_jobs(): jobs that are meant to be on the nodes now; what else bears our name there was left behind
SELECT j.job_id, j.node, j.pid, j.kind, j.life_id
FROM jobs j
LEFT JOIN lives l ON l.life_id = j.life_id
LEFT JOIN runs r ON r.run_id = j.run_id
WHERE j.state IN ('starting', 'running')
  AND (l.state IN ('starting', 'ready') OR (j.kind <> 'server' AND r.state <> 'done'))
ORDER BY j.job_id
