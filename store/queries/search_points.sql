-- search_points(run): the points of a search in order of work; latencies over the successful requests of all its repeats that succeeded
WITH good AS (
    SELECT a.attempt_id, coalesce(a.request_rate, a.concurrency) AS load, bool_or(p.name = 'steady') AS steady
    FROM attempts a
    LEFT JOIN phases p USING (attempt_id)
    WHERE a.run_id = run AND a.state = 'done'
      AND a.outcome IN ('OK', 'TTFT_SLO_EXCEEDED', 'TPOT_SLO_EXCEEDED', 'SLO_EXCEEDED')
    GROUP BY ALL
), kept AS (
    SELECT g.load, (r.first_ns - r.sent_ns) / 1e6 AS ttft, (r.last_ns - r.sent_ns) / 1e6 AS e2e,
           CASE WHEN r.output_tokens > 1 THEN (r.last_ns - r.first_ns) / 1e6 / (r.output_tokens - 1) END AS tpot,
           r.cached_tokens, r.prompt_tokens
    FROM good g
    JOIN requests r USING (attempt_id)
    WHERE r.measured AND r.status = 'ok' AND r.first_ns > r.sent_ns AND (r.phase = 'steady' OR NOT coalesce(g.steady, false))
), figures AS (
    SELECT load,
           count(ttft) AS ttft_ms_n, avg(ttft) AS ttft_ms_mean, quantile_cont(ttft, [0.5, 0.95, 0.99]) AS ttft,
           count(tpot) AS tpot_ms_n, avg(tpot) AS tpot_ms_mean, quantile_cont(tpot, [0.5, 0.95, 0.99]) AS tpot,
           count(e2e) AS e2e_ms_n, avg(e2e) AS e2e_ms_mean, quantile_cont(e2e, [0.5, 0.95, 0.99]) AS e2e,
           sum(cached_tokens) / nullif(sum(prompt_tokens) FILTER (cached_tokens IS NOT NULL), 0) AS prefix_hit_share
    FROM kept
    GROUP BY load
)
SELECT p.*, a.attempts,
       coalesce(f.ttft_ms_n, 0) AS ttft_ms_n, f.ttft_ms_mean, f.ttft[1] AS ttft_ms_p50, f.ttft[2] AS ttft_ms_p95, f.ttft[3] AS ttft_ms_p99,
       coalesce(f.tpot_ms_n, 0) AS tpot_ms_n, f.tpot_ms_mean, f.tpot[1] AS tpot_ms_p50, f.tpot[2] AS tpot_ms_p95, f.tpot[3] AS tpot_ms_p99,
       coalesce(f.e2e_ms_n, 0) AS e2e_ms_n, f.e2e_ms_mean, f.e2e[1] AS e2e_ms_p50, f.e2e[2] AS e2e_ms_p95, f.e2e[3] AS e2e_ms_p99,
       f.prefix_hit_share
FROM points p
LEFT JOIN figures f ON f.load = coalesce(p.request_rate, p.concurrency)
LEFT JOIN (
    SELECT coalesce(request_rate, concurrency) AS load, list(attempt_id ORDER BY ordinal, attempt_id) FILTER (state = 'done') AS attempts
    FROM attempts WHERE run_id = run GROUP BY ALL
) a ON a.load = coalesce(p.request_rate, p.concurrency)
WHERE p.run_id = run
ORDER BY p.ordinal
