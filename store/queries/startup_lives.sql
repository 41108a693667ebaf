-- startup_lives(): the server lives, newest first: how each start went, and how long it took
SELECT life_id, run_id, deployment, state, engine, simulated, external, started_wall_ns, ready_wall_ns, ended_wall_ns,
       (ready_wall_ns - started_wall_ns) / 1e9 AS ready_s, outcome, detail
FROM lives ORDER BY started_wall_ns DESC LIMIT 50
