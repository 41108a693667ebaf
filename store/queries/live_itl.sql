-- live_itl(attempt, win, until := 9000000000000000000): percentiles of the gaps between chunks of the measured requests that ended well, in ms
WITH kept AS (
  SELECT chunk_ns FROM requests
  WHERE attempt_id = attempt AND status = 'ok' AND measured AND first_ns > sent_ns AND len(chunk_ns) >= 2
    AND sent_wall_ns + (last_ns - sent_ns) <= until
    AND CASE win WHEN 'steady' THEN phase = 'steady'
                 WHEN 'recent' THEN sent_wall_ns + (last_ns - sent_ns) > until - 60000000000 ELSE true END
), gap AS (
  SELECT (unnest(chunk_ns[2:]) - unnest(chunk_ns[:-2]))::DOUBLE AS ns FROM kept
), found AS (
  SELECT count(*) AS n, avg(ns) / 1e6 AS mean, quantile_cont(ns, [0.5, 0.95, 0.99]) AS q FROM gap
)
SELECT 'itl_ms' AS metric, n, mean, q[1] / 1e6 AS p50, q[2] / 1e6 AS p95, q[3] / 1e6 AS p99 FROM found
