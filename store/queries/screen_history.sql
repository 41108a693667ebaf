-- screen_history(): how long attempts of each case took so far by deployment, and how the last one ended
SELECT r.deployment, a.case_name, a.concurrency, a.request_rate, count(*) AS attempts,
       median(a.ended_wall_ns - a.started_wall_ns) / 1e9 AS median_s,
       arg_max(a.outcome, a.ended_wall_ns) AS last_outcome, max(a.ended_wall_ns) AS last_ended_wall_ns,
       arg_max(a.run_id, a.ended_wall_ns) AS last_run_id
FROM attempts a JOIN runs r USING (run_id)
WHERE a.state = 'done'
GROUP BY ALL
ORDER BY ALL
