-- screen_attempts(run, win): one row an attempt with its requests, counted tokens, rates and percentiles; win: all | steady
WITH bounds AS (  -- all: first send to last end of the measured requests; steady: the phase, on the client's monotonic clock
  SELECT a.attempt_id,
         coalesce(max(p.start_mono_ns), min(q.sent_ns) FILTER (WHERE q.measured AND win <> 'steady')) AS w0,
         coalesce(max(p.end_mono_ns), max(q.end_ns) FILTER (WHERE q.measured AND win <> 'steady')) AS w1
  FROM attempts a
  LEFT JOIN requests q USING (attempt_id)
  LEFT JOIN (SELECT * FROM phases WHERE name = 'steady' AND win = 'steady') p USING (attempt_id)
  WHERE a.run_id = run
  GROUP BY a.attempt_id
), arrived AS (  -- every request counts, also filler: tokens by their arrival, the prompt at its first token
  SELECT b.attempt_id,
         sum(CASE WHEN q.first_ns BETWEEN b.w0 AND b.w1 THEN q.prompt_tokens END) AS input_tokens,
         sum(CASE WHEN q.first_ns >= b.w0 AND q.last_ns <= b.w1 THEN q.output_tokens
                  WHEN q.last_ns < b.w0 OR q.first_ns > b.w1 OR q.chunk_ns IS NULL THEN 0
                  ELSE list_sum(list_transform(list_zip(q.chunk_ns, coalesce(q.chunk_tokens, list_transform(q.chunk_ns, lambda c: 1))),
                       lambda c: CASE WHEN q.sent_ns + c[1] BETWEEN b.w0 AND b.w1 THEN c[2] ELSE 0 END)) END) AS output_tokens
  FROM bounds b JOIN requests q USING (attempt_id)
  WHERE q.kind <> 'warmup' AND b.w0 IS NOT NULL AND b.w1 IS NOT NULL
  GROUP BY b.attempt_id
), kept AS (
  SELECT q.*, CASE WHEN q.status = 'ok' AND q.first_ns > q.sent_ns THEN (q.first_ns - q.sent_ns) / 1e6 END AS ttft,
         CASE WHEN q.status = 'ok' AND q.first_ns > q.sent_ns THEN (q.last_ns - q.sent_ns) / 1e6 END AS e2e,
         CASE WHEN q.status = 'ok' AND q.first_ns > q.sent_ns AND q.output_tokens >= 2
              THEN (q.last_ns - q.first_ns) / 1e6 / (q.output_tokens - 1) END AS tpot
  FROM requests q
  WHERE q.run_id = run AND q.measured AND (win <> 'steady' OR q.phase = 'steady')
), stats AS (
  SELECT attempt_id, count(*) FILTER (WHERE status = 'ok') AS ok, count(*) FILTER (WHERE status = 'failed') AS failed,
         count(*) FILTER (WHERE status = 'timed_out') AS timed_out, count(*) FILTER (WHERE status = 'cut') AS cut,
         count(ttft) AS n, quantile_cont(ttft, [0.5, 0.95, 0.99]) AS ttft_ms, quantile_cont(tpot, [0.5, 0.95, 0.99]) AS tpot_ms,
         quantile_cont(e2e, [0.5, 0.95, 0.99]) AS e2e_ms
  FROM kept GROUP BY attempt_id
)
SELECT a.attempt_id, a.ordinal, a.case_name, a.isl, a.osl, a.concurrency, a.request_rate, a.repeat, a.state, a.outcome, a.detail,
       a.flags, a.client, a.life_id, a.node, a.started_wall_ns, a.ended_wall_ns, (b.w1 - b.w0) / 1e9 AS duration_s,
       s.* EXCLUDE (attempt_id), r.input_tokens::BIGINT AS input_tokens, r.output_tokens::BIGINT AS output_tokens,
       r.input_tokens * 1e9 / nullif(b.w1 - b.w0, 0) AS input_tps, r.output_tokens * 1e9 / nullif(b.w1 - b.w0, 0) AS output_tps
FROM attempts a
LEFT JOIN bounds b USING (attempt_id)
LEFT JOIN stats s USING (attempt_id)
LEFT JOIN arrived r USING (attempt_id)
WHERE a.run_id = run
ORDER BY a.ordinal, a.repeat, a.attempt_id
