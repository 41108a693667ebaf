-- runs_list(): every run, newest first, with how many of its attempts are done, and who paused it
SELECT r.run_id, r.kind, r.deployment, r.plan, r.state, r.outcome, r.detail, r.simulated, r.created_wall_ns, r.ended_wall_ns,
       r.who, r.why, r.results_dir, p.paused_by,
       count(a.attempt_id) FILTER (WHERE a.state <> 'void') AS attempts,
       count(a.attempt_id) FILTER (WHERE a.state = 'done') AS attempts_done,
       count(a.attempt_id) FILTER (WHERE a.state = 'done' AND a.outcome <> 'OK') AS attempts_not_ok
FROM runs r
LEFT JOIN attempts a USING (run_id)
LEFT JOIN runs_paused() p USING (run_id)
GROUP BY ALL
ORDER BY r.created_wall_ns DESC, r.run_id DESC
