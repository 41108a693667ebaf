-- gpu_spans(run): the time of each attempt's load on the run's clock: its steady phase where it has one, else its ramp to its drain
WITH p AS (
  SELECT attempt_id, name, start_ns, end_ns FROM live_phases(run) WHERE name IN ('ramp', 'steady', 'drain') AND start_ns IS NOT NULL
)
SELECT attempt_id, CASE WHEN bool_or(name = 'steady') THEN 'steady' ELSE 'all' END AS span,
       coalesce(min(start_ns) FILTER (WHERE name = 'steady'), min(start_ns)) AS start_ns,
       coalesce(max(end_ns) FILTER (WHERE name = 'steady'), max(end_ns)) AS end_ns
FROM p GROUP BY attempt_id HAVING coalesce(max(end_ns) FILTER (WHERE name = 'steady'), max(end_ns)) IS NOT NULL
ORDER BY attempt_id
