-- run_lives(run): the server lives that a run started or used
SELECT l.* FROM lives l
WHERE l.run_id = run OR l.life_id IN (SELECT life_id FROM attempts WHERE run_id = run)
ORDER BY l.started_wall_ns
