-- live_requests(attempt, win, until := 9000000000000000000): percentiles of the measured requests that ended well; win: all | steady | recent (last minute)
WITH r AS (
  SELECT *, sent_wall_ns + (coalesce(last_ns, end_ns) - sent_ns) AS ended_wall_ns
  FROM requests
  WHERE attempt_id = attempt AND status = 'ok' AND measured AND first_ns > sent_ns
), kept AS (
  SELECT * FROM r
  WHERE ended_wall_ns <= until
    AND CASE win WHEN 'steady' THEN phase = 'steady' WHEN 'recent' THEN ended_wall_ns > until - 60000000000 ELSE true END
), value AS (
  SELECT 'ttft_ms' AS metric, (first_ns - sent_ns) / 1e6 AS ms FROM kept
  UNION ALL
  SELECT 'e2e_ms', (last_ns - sent_ns) / 1e6 FROM kept
  UNION ALL
  SELECT 'tpot_ms', (last_ns - first_ns) / 1e6 / (output_tokens - 1) FROM kept WHERE output_tokens >= 2
)
SELECT metric, count(ms) AS n, avg(ms) AS mean, quantile_cont(ms, 0.5) AS p50, quantile_cont(ms, 0.95) AS p95,
       quantile_cont(ms, 0.99) AS p99
FROM value GROUP BY metric ORDER BY metric
