-- live_counts(attempt, win, until := 9000000000000000000): how the measured requests of an attempt ended, and their counted tokens
WITH r AS (  -- a first token at the moment of sending is a fault, not a sample
  SELECT * REPLACE (CASE WHEN status = 'ok' AND NOT coalesce(first_ns > sent_ns, false) THEN 'failed' ELSE status END AS status)
  FROM requests WHERE attempt_id = attempt AND measured
)
SELECT count(*) FILTER (WHERE status = 'ok') AS ok, count(*) FILTER (WHERE status = 'failed') AS failed,
       count(*) FILTER (WHERE status = 'timed_out') AS timed_out, count(*) FILTER (WHERE status = 'cut') AS cut,
       sum(prompt_tokens)::BIGINT AS input_tokens, sum(output_tokens)::BIGINT AS output_tokens,
       max(sent_wall_ns + (end_ns - sent_ns)) AS last_ended_wall_ns
FROM r
WHERE sent_wall_ns + (end_ns - sent_ns) <= until
  AND CASE win WHEN 'steady' THEN phase = 'steady'
               WHEN 'recent' THEN sent_wall_ns + (end_ns - sent_ns) > until - 60000000000 ELSE true END
