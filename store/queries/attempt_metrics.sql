-- attempt_metrics(attempt): counts, rates and latency percentiles of an attempt, a row for each window
SELECT * EXCLUDE (attempt_id)
FROM metrics_of([attempt])
ORDER BY "window"
