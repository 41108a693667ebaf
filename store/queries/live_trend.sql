-- live_trend(attempt, step_s, until := 9000000000000000000): TTFT and TPOT of the requests that ended in each step of an attempt, filler and failed ones apart
SELECT (sent_wall_ns + (last_ns - sent_ns)) // (step_s::BIGINT * 1000000000) * (step_s::BIGINT * 1000000000) AS at_ns,
       count(*) AS n,
       quantile_cont((first_ns - sent_ns) / 1e6, 0.5) AS ttft_p50, quantile_cont((first_ns - sent_ns) / 1e6, 0.95) AS ttft_p95,
       quantile_cont(CASE WHEN output_tokens >= 2 THEN (last_ns - first_ns) / 1e6 / (output_tokens - 1) END, 0.5) AS tpot_p50,
       quantile_cont(CASE WHEN output_tokens >= 2 THEN (last_ns - first_ns) / 1e6 / (output_tokens - 1) END, 0.95) AS tpot_p95
FROM requests
WHERE attempt_id = attempt AND status = 'ok' AND kind IN ('load', 'filler') AND first_ns > sent_ns
  AND sent_wall_ns + (last_ns - sent_ns) <= until
GROUP BY at_ns ORDER BY at_ns
