-- mixed_injections(attempt): the long requests put into an attempt's running load: how each went, on the client's clocks, and the most requests that the engine held back meanwhile
WITH i AS (
    SELECT *, row_number() OVER (ORDER BY sent_ns, request_id) AS number FROM requests
    WHERE attempt_id = attempt AND kind = 'inject'
), queue AS (  -- ranks of one look added up; the engine's metrics are preferred to what its log says
    SELECT i.request_id, e.wall_ns, coalesce(e.source, '') = 'log' AS from_log, sum(e.waiting) AS waiting, sum(e.running) AS running
    FROM i
    JOIN attempts a ON a.attempt_id = attempt
    JOIN engine_samples e ON e.life_id = a.life_id AND e.node = a.node
     AND e.wall_ns BETWEEN i.sent_wall_ns AND i.sent_wall_ns + (coalesce(i.end_ns, i.last_ns, i.sent_ns) - i.sent_ns)
    GROUP BY ALL
), held AS (
    SELECT request_id, arg_min(waiting, from_log) AS waiting
    FROM (SELECT request_id, from_log, max(waiting) AS waiting FROM queue GROUP BY ALL)
    GROUP BY request_id
)
SELECT i.number, i.request_id, i.status, i.error, coalesce(i.prompt_tokens, i.isl) AS prompt_tokens, i.output_tokens,
       i.sent_ns, i.sent_wall_ns, i.first_ns, coalesce(i.end_ns, i.last_ns) AS end_ns,
       CASE WHEN i.first_ns > i.sent_ns THEN (i.first_ns - i.sent_ns) / 1e6 END AS ttft_ms,
       (coalesce(i.end_ns, i.last_ns) - i.sent_ns) / 1e6 AS e2e_ms, len(i.chunk_ns) AS chunks, h.waiting
FROM i
LEFT JOIN held h USING (request_id)
ORDER BY i.number
