-- deployment_life(name): the newest server life of a deployment
SELECT life_id, deployment, state, url, engine, simulated, external, outcome, detail,
       started_wall_ns, ready_wall_ns, ended_wall_ns
FROM lives
WHERE deployment = name
ORDER BY started_wall_ns DESC
LIMIT 1
