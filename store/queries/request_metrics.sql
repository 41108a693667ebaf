-- request_metrics(attempt): latencies of each request of an attempt, and the windows to which it belongs
SELECT request_id, kind, phase, measured,
       -- a first token at the moment of sending is a fault of the clock or the client, not a sample
       CASE WHEN status = 'ok' AND NOT coalesce(first_ns > sent_ns, false) THEN 'failed' ELSE status END AS status,
       error, sent_ns, sent_wall_ns, first_ns, last_ns, end_ns, prompt_tokens, output_tokens, cached_tokens,
       CASE WHEN first_ns > sent_ns THEN (first_ns - sent_ns) / 1e6 END AS ttft_ms,
       CASE WHEN first_ns > sent_ns AND output_tokens > 1 THEN (last_ns - first_ns) / 1e6 / (output_tokens - 1) END AS tpot_ms,
       CASE WHEN first_ns > sent_ns THEN (last_ns - sent_ns) / 1e6 END AS e2e_ms,
       len(chunk_ns) AS chunks,
       measured AS in_all,
       measured AND phase = 'steady' AS in_steady
FROM requests
WHERE attempt_id = attempt
ORDER BY sent_ns, request_id
