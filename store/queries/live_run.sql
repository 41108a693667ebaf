-- live_run(run): the run and its attempts, one row an attempt in order of work (one row without attempt if it has none)
SELECT r.run_id, r.kind, r.deployment, r.plan, r.state AS run_state, r.outcome AS run_outcome, r.detail AS run_detail,
       r.simulated, r.created_wall_ns, r.ended_wall_ns AS run_ended_wall_ns, r.clock_node, r.spec,
       a.attempt_id, a.ordinal, a.case_name, a.isl, a.osl, a.concurrency, a.request_rate, a.repeat, a.client, a.node,
       a.life_id, a.state, a.outcome, a.detail, a.flags, a.case_spec, a.started_wall_ns, a.ended_wall_ns,
       l.engine, l.version, l.state AS life_state
FROM runs r
LEFT JOIN attempts a USING (run_id)
LEFT JOIN lives l ON l.life_id = a.life_id
WHERE r.run_id = run
ORDER BY a.ordinal, a.repeat, a.attempt_id
