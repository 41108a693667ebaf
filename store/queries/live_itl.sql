-- live_itl(attempt, win, until := 9000000000000000000): percentiles of the gaps between chunks of the measured requests that ended well, in ms
WITH kept AS (
  SELECT chunk_ns FROM requests
  WHERE attempt_id = attempt AND status = 'ok' AND measured AND first_ns > sent_ns AND len(chunk_ns) >= 2
    AND sent_wall_ns + (last_ns - sent_ns) <= until
    AND CASE win WHEN 'steady' THEN phase = 'steady'
                 WHEN 'recent' THEN sent_wall_ns + (last_ns - sent_ns) > until - 60000000000 ELSE true END
), gap AS (
  SELECT unnest(list_transform(list_zip(chunk_ns[2:], chunk_ns[:-2]), lambda p: p[1] - p[2])) / 1e6 AS ms FROM kept
)
SELECT 'itl_ms' AS metric, count(ms) AS n, avg(ms) AS mean, quantile_cont(ms, 0.5) AS p50, quantile_cont(ms, 0.95) AS p95,
       quantile_cont(ms, 0.99) AS p99
FROM gap
