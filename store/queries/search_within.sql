-- search_within(run, ttft_ms := NULL, tpot_ms := NULL, e2e_ms := NULL): of the measured requests of each load of a search, how many met every bound given (a failed or late one did not; one cut by the budget is left out)
WITH done AS (
    SELECT a.attempt_id, a.concurrency, a.request_rate, bool_or(p.name = 'steady') AS steady
    FROM attempts a
    LEFT JOIN phases p USING (attempt_id)
    WHERE a.run_id = run AND a.state = 'done'
    GROUP BY ALL
), asked AS (
    SELECT d.concurrency, d.request_rate,
           coalesce(r.status = 'ok' AND r.first_ns > r.sent_ns
               AND (ttft_ms IS NULL OR (r.first_ns - r.sent_ns) / 1e6 <= ttft_ms)
               AND (tpot_ms IS NULL OR r.output_tokens < 2 OR (r.last_ns - r.first_ns) / 1e6 / (r.output_tokens - 1) <= tpot_ms)
               AND (e2e_ms IS NULL OR (r.last_ns - r.sent_ns) / 1e6 <= e2e_ms), false) AS met
    FROM done d
    JOIN requests r USING (attempt_id)
    WHERE r.measured AND r.status <> 'cut' AND (r.phase = 'steady' OR NOT coalesce(d.steady, false))
)
SELECT concurrency, request_rate, count(*) AS requests, count(*) FILTER (met) AS within, count(*) FILTER (met) / count(*) AS share
FROM asked
GROUP BY concurrency, request_rate
ORDER BY concurrency, request_rate
