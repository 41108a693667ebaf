-- plan_lives(): each deployment's newest server life, and how long its servers took to come up (median, s)
SELECT deployment, arg_max(state, started_wall_ns) AS state, arg_max(fingerprint, started_wall_ns) AS fingerprint,
       median((ready_wall_ns - started_wall_ns) / 1e9) FILTER (WHERE NOT external) AS start_s
FROM lives
GROUP BY ALL
ORDER BY deployment
