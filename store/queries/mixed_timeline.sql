-- mixed_timeline(attempt, step_ms): the background of a mixed attempt step by step (client's monotonic clock): gaps between chunks, and output tokens/s
SELECT at_ns // (step_ms::BIGINT * 1000000) * (step_ms::BIGINT * 1000000) AS at_ns, count(*) AS n,
       quantile_cont(ms, 0.5) AS itl_p50, quantile_cont(ms, 0.95) AS itl_p95, max(ms) AS itl_max,
       sum(tokens * 1e3 / step_ms) AS output_tps
FROM mixed_gaps(attempt)
GROUP BY 1
ORDER BY 1
