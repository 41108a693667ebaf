-- screen_scatter(attempt): each request of an attempt at the second it was sent (since the first), with TTFT, TPOT and how it ended
SELECT request_id, kind, phase, measured, status, error, error_text, prompt_tokens, output_tokens,
       (sent_ns - min(sent_ns) OVER ()) / 1e9 AS at_s,
       CASE WHEN first_ns > sent_ns THEN (first_ns - sent_ns) / 1e6 END AS ttft_ms,
       CASE WHEN output_tokens >= 2 THEN (last_ns - first_ns) / 1e6 / (output_tokens - 1) END AS tpot_ms,
       (coalesce(last_ns, end_ns) - sent_ns) / 1e6 AS e2e_ms
FROM requests
WHERE attempt_id = attempt AND sent_ns IS NOT NULL
ORDER BY sent_ns, request_id
