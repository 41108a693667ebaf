-- ab_attempts(runs): the attempts that a comparison is made of, with the figures of their steady window (of all they sent where there is none)
WITH m AS (
    FROM metrics_of((SELECT list(attempt_id) FROM attempts WHERE run_id IN (SELECT unnest(runs)) AND state = 'done'))
    WHERE start_ns IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY attempt_id ORDER BY "window" DESC) = 1  -- steady before all
), tokens AS (
    SELECT attempt_id, avg(prompt_tokens) AS prompt_tokens, avg(output_tokens) AS answer_tokens,
           sum(cached_tokens) / nullif(sum(prompt_tokens), 0) AS cached_share
    FROM requests
    WHERE run_id IN (SELECT unnest(runs)) AND measured AND status = 'ok'
    GROUP BY attempt_id
)
SELECT a.run_id, a.attempt_id, a.ordinal, a.repeat, a.case_name, a.variant, a.isl, a.osl, a.concurrency, a.request_rate AS asked_rate,
       a.client, a.life_id, a.outcome, a.detail, a.flags, a.case_spec, r.kind AS run_kind, r.simulated,
       t.prompt_tokens, t.answer_tokens, t.cached_share,
       m.input_tps, m.output_tps, m.request_rate,
       m.ttft_ms_n, m.ttft_ms_mean, m.ttft_ms_p50, m.ttft_ms_p95, m.ttft_ms_p99,
       m.tpot_ms_n, m.tpot_ms_mean, m.tpot_ms_p50, m.tpot_ms_p95, m.tpot_ms_p99,
       m.itl_ms_n, m.itl_ms_mean, m.itl_ms_p50, m.itl_ms_p95, m.itl_ms_p99,
       m.e2e_ms_n, m.e2e_ms_mean, m.e2e_ms_p50, m.e2e_ms_p95, m.e2e_ms_p99
FROM attempts a
JOIN runs r USING (run_id)
LEFT JOIN m USING (attempt_id)
LEFT JOIN tokens t USING (attempt_id)
WHERE a.run_id IN (SELECT unnest(runs)) AND a.state = 'done'
ORDER BY a.run_id, a.ordinal, a.attempt_id
