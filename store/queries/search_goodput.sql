-- search_goodput(run, ttft_ms := NULL, tpot_ms := NULL, e2e_ms := NULL): requests/s that ended at each load of a search, and those that met every bound given (goodput); means over the repeats that succeeded
WITH ids AS (
    SELECT list(attempt_id) AS attempts FROM attempts
    WHERE run_id = run AND state = 'done' AND outcome IN ('OK', 'TTFT_SLO_EXCEEDED', 'TPOT_SLO_EXCEEDED', 'SLO_EXCEEDED')
), rates AS (  -- steady before all
    SELECT attempt_id, request_rate
    FROM metrics_of((SELECT attempts FROM ids))
    WHERE start_ns IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY attempt_id ORDER BY "window" DESC) = 1
)
SELECT a.concurrency, a.request_rate, avg(r.request_rate) AS served_rps, any_value(w.share) AS slo_share,
       avg(r.request_rate) * any_value(w.share) AS goodput_rps
FROM rates r
JOIN attempts a USING (attempt_id)
LEFT JOIN search_within(run, ttft_ms := ttft_ms, tpot_ms := tpot_ms, e2e_ms := e2e_ms) w
  ON w.concurrency IS NOT DISTINCT FROM a.concurrency AND w.request_rate IS NOT DISTINCT FROM a.request_rate
GROUP BY a.concurrency, a.request_rate
ORDER BY a.concurrency, a.request_rate
