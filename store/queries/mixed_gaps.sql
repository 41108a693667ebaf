-- mixed_gaps(attempt): every gap between two chunks of the background of a mixed attempt from steady on: when it ended (client's monotonic clock), its ms, its tokens, and the window: before the first injection, during one, after
WITH steady AS (
    SELECT min(start_mono_ns) AS start_ns FROM phases WHERE attempt_id = attempt AND name = 'steady'
), injected AS (
    SELECT sent_ns AS t0, coalesce(end_ns, last_ns, 9000000000000000000) AS t1
    FROM requests WHERE attempt_id = attempt AND kind = 'inject' AND sent_ns IS NOT NULL
), spans AS (  -- as two lists: an instant is within an injection if more have begun than ended
    SELECT list(t0 ORDER BY t0) AS begun, list(t1 ORDER BY t1) AS over, min(t0) AS first_ns FROM injected
), gaps AS (
    SELECT request_id, sent_ns + unnest(chunk_ns[2:]) AS at_ns, (unnest(chunk_ns[2:]) - unnest(chunk_ns[:-2])) / 1e6 AS ms,
           unnest(chunk_tokens[2:]) AS tokens
    FROM requests
    WHERE attempt_id = attempt AND kind IN ('load', 'filler') AND len(chunk_ns) > 1
)
SELECT g.request_id, g.at_ns, g.ms, g.tokens,
       CASE WHEN s.first_ns IS NULL OR g.at_ns < s.first_ns THEN 'before'
            WHEN len(list_filter(s.begun, lambda t: t <= g.at_ns)) > len(list_filter(s.over, lambda t: t <= g.at_ns)) THEN 'during'
            ELSE 'after' END AS "window"
FROM gaps g, spans s, steady
WHERE g.at_ns >= steady.start_ns
