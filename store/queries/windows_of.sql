-- windows_of(attempts): the windows `all` and `steady` of the attempts in a list, on the client's monotonic clock; NULL where there is none
WITH measured AS (
    SELECT attempt_id, min(sent_ns) AS first_sent_ns, max(coalesce(end_ns, last_ns, sent_ns)) AS last_end_ns
    FROM requests
    WHERE measured AND attempt_id IN (SELECT unnest(attempts))
    GROUP BY attempt_id
), steady AS (
    SELECT attempt_id, min(start_mono_ns) AS start_ns
    FROM phases
    WHERE name = 'steady' AND attempt_id IN (SELECT unnest(attempts))
    GROUP BY attempt_id
), both_windows AS (
    SELECT a.attempt_id, 'all' AS "window", m.first_sent_ns AS start_ns, m.last_end_ns AS end_ns
    FROM (SELECT DISTINCT unnest(attempts) AS attempt_id) a LEFT JOIN measured m USING (attempt_id)
    UNION ALL
    SELECT a.attempt_id, 'steady',
           CASE WHEN m.last_end_ns > s.start_ns THEN s.start_ns END,
           CASE WHEN m.last_end_ns > s.start_ns THEN m.last_end_ns END
    FROM (SELECT DISTINCT unnest(attempts) AS attempt_id) a
    LEFT JOIN measured m USING (attempt_id)
    LEFT JOIN steady s USING (attempt_id)
)
SELECT attempt_id, "window", start_ns, end_ns, (end_ns - start_ns) / 1e9 AS duration_s
FROM both_windows
ORDER BY attempt_id, "window"
