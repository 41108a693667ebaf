-- mixed_windows(attempt): the background before, during and after injections: seconds, output tokens/s, gaps between chunks, and TPOT (a request's time per token over what it received within the window)
WITH g AS MATERIALIZED (
    FROM mixed_gaps(attempt)
), edges AS (
    SELECT min(start_mono_ns) AS t0, max(last_ns) AS t1
    FROM phases p, (SELECT max(at_ns) AS last_ns FROM g)
    WHERE p.attempt_id = attempt AND p.name = 'steady'
), injected AS (
    SELECT sent_ns AS t0, coalesce(end_ns, last_ns) AS t1 FROM requests
    WHERE attempt_id = attempt AND kind = 'inject' AND sent_ns IS NOT NULL
), merged AS (  -- injections that overlap are one stretch
    SELECT sum(greatest(least(coalesce(i.t1, e.t1), e.t1) - greatest(i.t0, i.seen), 0)) AS during_ns, min(i.t0) AS first_ns
    FROM (
        SELECT *, coalesce(max(t1) OVER (ORDER BY t0 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS seen FROM injected
    ) i, edges e
), spans AS (
    SELECT unnest([{'name': 'before', 'n': 1, 's': (coalesce(m.first_ns, e.t1) - e.t0) / 1e9},
                   {'name': 'during', 'n': 2, 's': m.during_ns / 1e9},
                   {'name': 'after', 'n': 3, 's': (e.t1 - m.first_ns - m.during_ns) / 1e9}], recursive := true)
    FROM merged m, edges e
), tpot AS (
    SELECT "window", count(*) AS n, quantile_cont(ms, [0.5, 0.95, 0.99]) AS q
    FROM (SELECT "window", request_id, sum(ms) / sum(tokens) AS ms FROM g GROUP BY ALL HAVING sum(tokens) > 0)
    GROUP BY "window"
), itl AS (
    SELECT "window", count(*) AS n, quantile_cont(ms, [0.5, 0.95, 0.99]) AS q, max(ms) AS longest, sum(tokens) AS tokens
    FROM g
    GROUP BY "window"
)
SELECT s.name AS "window", s.s AS duration_s, i.tokens / nullif(s.s, 0) AS output_tps,
       coalesce(t.n, 0) AS tpot_ms_n, t.q[1] AS tpot_ms_p50, t.q[2] AS tpot_ms_p95, t.q[3] AS tpot_ms_p99,
       coalesce(i.n, 0) AS itl_ms_n, i.q[1] AS itl_ms_p50, i.q[2] AS itl_ms_p95, i.q[3] AS itl_ms_p99, i.longest AS itl_ms_max
FROM spans s
LEFT JOIN itl i ON i."window" = s.name
LEFT JOIN tpot t ON t."window" = s.name
ORDER BY s.n
