-- search_knee(run): the load of a search behind which tokens cost most latency: the point that lies highest above the straight line from the lowest to the highest load that succeeded, TPS over P95 of TPOT (of TTFT for OSL 1), both scaled to 0..1 (Satopää et al. 2011, "Finding a Kneedle in a Haystack"); no row with fewer than three points or without a bend
WITH curve AS (
    SELECT p.concurrency, p.request_rate, coalesce(p.request_rate, p.concurrency) AS load,
           CASE WHEN a.osl = 1 THEN p.input_tps ELSE p.output_tps END AS tps,
           CASE WHEN a.osl = 1 THEN p.ttft_ms_p95 ELSE p.tpot_ms_p95 END AS ms
    FROM search_points(run) p
    JOIN (SELECT any_value(osl) AS osl FROM attempts WHERE run_id = run) a ON true
    WHERE p.outcome IN ('OK', 'TTFT_SLO_EXCEEDED', 'TPOT_SLO_EXCEEDED', 'SLO_EXCEEDED')
), ends AS (
    SELECT arg_min(tps, load) AS tps0, max(tps) AS tps1, arg_min(ms, load) AS ms0, max(ms) AS ms1, count(*) AS n
    FROM curve WHERE tps IS NOT NULL AND ms IS NOT NULL
)
SELECT concurrency, request_rate, tps, ms AS p95_ms,
       (tps - tps0) / (tps1 - tps0) - (ms - ms0) / (ms1 - ms0) AS height
FROM curve, ends
WHERE n >= 3 AND tps1 > tps0 AND ms1 > ms0 AND tps IS NOT NULL AND ms IS NOT NULL
  AND (tps - tps0) / (tps1 - tps0) - (ms - ms0) / (ms1 - ms0) > 0.05
ORDER BY height DESC, load
LIMIT 1
