-- attempt_requests(attempt): the requests of an attempt in order of sending, without their chunks
SELECT * EXCLUDE (chunk_ns, chunk_tokens), len(chunk_ns) AS chunks
FROM requests
WHERE attempt_id = attempt
ORDER BY sent_ns, request_id
