-- mixed_attempts(): attempts that put long requests into a running load and have begun, the newest run first
SELECT a.run_id, a.attempt_id, a.ordinal, a.case_name, a.isl, a.osl, a.concurrency, a.request_rate, a.repeat, a.state, a.outcome,
       a.detail, a.case_spec, a.variant, a.node, a.started_wall_ns, a.ended_wall_ns, r.deployment, r.state AS run_state
FROM attempts a
JOIN runs r USING (run_id)
WHERE regexp_matches(a.case_spec, '"inject"\s*:\s*[{]') AND a.state IN ('running', 'done')
ORDER BY r.created_wall_ns DESC, r.run_id, a.ordinal, a.repeat, a.attempt_id
