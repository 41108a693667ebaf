-- mixed_recovery(attempt): how long after the end of each injection the background needs until a second's median gap is within 10 % of what it was before the first one; NULL: not before the next injection or the end
WITH g AS MATERIALIZED (
    FROM mixed_gaps(attempt)
), calm AS (
    SELECT median(ms) AS ms FROM g WHERE "window" = 'before'
), i AS (
    SELECT row_number() OVER w AS number, request_id, coalesce(end_ns, last_ns) AS over_ns, lead(sent_ns) OVER w AS next_ns
    FROM requests
    WHERE attempt_id = attempt AND kind = 'inject'
    WINDOW w AS (ORDER BY sent_ns, request_id)
), seconds AS (
    SELECT i.number, (g.at_ns - i.over_ns) // 1000000000 AS second, median(g.ms) AS ms
    FROM i JOIN g ON g.at_ns >= i.over_ns AND g.at_ns < coalesce(i.next_ns, 9000000000000000000)
    GROUP BY ALL
)
SELECT i.number, i.request_id, min(s.second) FILTER (s.ms <= 1.1 * calm.ms) AS recovery_s, calm.ms AS calm_ms
FROM i
LEFT JOIN seconds s USING (number), calm
GROUP BY i.number, i.request_id, calm.ms
ORDER BY i.number
