-- search_pace(run): what the steps of a search take, in seconds: an attempt and a settled point (medians), all since it began, and a start of its deployment's server (median of those known)
WITH tries AS (
    SELECT coalesce(a.request_rate, a.concurrency) AS load, a.state, a.started_wall_ns AS t0, a.ended_wall_ns AS t1
    FROM attempts a
    WHERE a.run_id = run AND a.started_wall_ns IS NOT NULL
), settled AS (
    SELECT p.ordinal, (max(t.t1) - min(t.t0)) / 1e9 AS took_s
    FROM points p
    JOIN tries t ON t.load = coalesce(p.request_rate, p.concurrency)
    WHERE p.run_id = run AND p.outcome IS NOT NULL
    GROUP BY p.ordinal
), starts AS (
    SELECT (l.ready_wall_ns - l.started_wall_ns) / 1e9 AS took_s
    FROM lives l
    JOIN runs r ON r.run_id = run AND r.deployment = l.deployment
    WHERE NOT l.external AND l.ready_wall_ns > l.started_wall_ns
)
SELECT (SELECT count(*) FROM tries WHERE state = 'done') AS attempts,
       (SELECT median((t1 - t0) / 1e9) FROM tries WHERE state = 'done' AND t1 > t0) AS attempt_s,
       (SELECT count(*) FROM settled) AS points,
       (SELECT median(took_s) FROM settled) AS point_s,
       (SELECT (max(t1) - min(t0)) / 1e9 FROM tries) AS took_s,
       (SELECT count(*) FROM starts) AS starts,
       (SELECT median(took_s) FROM starts) AS start_s
