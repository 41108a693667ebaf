-- metrics_of(attempts): counts, rates and latency percentiles of each window of the attempts in a list
WITH r AS (
    SELECT attempt_id, request_id, measured, phase, sent_ns, first_ns, last_ns, end_ns, prompt_tokens, output_tokens,
           CASE WHEN status = 'ok' AND NOT coalesce(first_ns > sent_ns, false) THEN 'failed' ELSE status END AS status,
           chunk_ns, chunk_tokens,
           -- where the client had to take a chunk for one token, the server's usage tells how many it was on average
           CASE WHEN tokens_per_chunk = 'assumed' AND output_tokens > 0 AND list_sum(chunk_tokens) > 0
                THEN output_tokens / list_sum(chunk_tokens) ELSE 1 END AS weight
    FROM requests
    WHERE attempt_id IN (SELECT unnest(attempts))
), w AS MATERIALIZED (
    FROM windows_of(attempts)
), in_window AS (
    -- what arrived in the window, of every request; only a request that reaches over an edge is taken apart
    SELECT w.attempt_id, w."window",
           sum(CASE WHEN r.first_ns BETWEEN w.start_ns AND w.end_ns THEN r.prompt_tokens END)::BIGINT AS input_tokens,
           round(sum(CASE
               WHEN r.chunk_ns IS NULL THEN CASE WHEN r.last_ns BETWEEN w.start_ns AND w.end_ns THEN r.output_tokens END
               WHEN r.first_ns >= w.start_ns AND r.last_ns <= w.end_ns THEN r.weight * list_sum(r.chunk_tokens)
               WHEN r.first_ns > w.end_ns OR r.last_ns < w.start_ns THEN 0
               ELSE r.weight * list_sum(list_transform(
                   list_zip(r.chunk_ns, r.chunk_tokens),
                   lambda c: CASE WHEN r.sent_ns + c[1] BETWEEN w.start_ns AND w.end_ns THEN c[2] ELSE 0 END))
               END))::BIGINT AS output_tokens,
           count(*) FILTER (r.status = 'ok' AND r.end_ns BETWEEN w.start_ns AND w.end_ns) AS ended
    FROM w JOIN r USING (attempt_id)
    WHERE w.start_ns IS NOT NULL
    GROUP BY ALL
), belonging AS (
    SELECT r.*, "window"
    FROM r, (VALUES ('all'), ('steady')) AS v("window")
    WHERE r.measured AND ("window" = 'all' OR r.phase = 'steady')
), counts AS (
    SELECT attempt_id, "window",
           count(*) FILTER (status = 'ok') AS ok,
           count(*) FILTER (status = 'failed') AS failed,
           count(*) FILTER (status = 'timed_out') AS timed_out,
           count(*) FILTER (status = 'cut') AS cut
    FROM belonging
    GROUP BY ALL
), latencies AS (
    SELECT attempt_id, "window", unnest([
               {'metric': 'ttft_ms', 'ms': (first_ns - sent_ns) / 1e6},
               {'metric': 'tpot_ms', 'ms': CASE WHEN output_tokens > 1 THEN (last_ns - first_ns) / 1e6 / (output_tokens - 1) END},
               {'metric': 'e2e_ms', 'ms': (last_ns - sent_ns) / 1e6}
           ], recursive := true)
    FROM belonging
    WHERE status = 'ok'
    UNION ALL
    -- the gap before each chunk after the first
    SELECT attempt_id, "window", 'itl_ms', unnest(list_transform(
               list_zip(chunk_ns[2:], chunk_ns[:-2]), lambda c: (c[1] - c[2]) / 1e6))
    FROM belonging
    WHERE status = 'ok' AND len(chunk_ns) > 1
    UNION ALL
    SELECT attempt_id, "window", 'itl_per_token_ms', unnest(list_transform(
               list_zip(chunk_ns[2:], chunk_ns[:-2], chunk_tokens[2:]),
               lambda c: CASE WHEN c[3] > 0 THEN (c[1] - c[2]) / 1e6 / (c[3] * weight) END))
    FROM belonging
    WHERE status = 'ok' AND len(chunk_ns) > 1
), quantiles AS (
    SELECT attempt_id, "window", metric, count(ms) AS n, avg(ms) AS mean, quantile_cont(ms, [0.5, 0.95, 0.99]) AS q
    FROM latencies
    GROUP BY ALL
), latency AS (
    SELECT attempt_id, "window",
           any_value({'n': n, 'mean': mean, 'q': q}) FILTER (metric = 'ttft_ms') AS ttft,
           any_value({'n': n, 'mean': mean, 'q': q}) FILTER (metric = 'tpot_ms') AS tpot,
           any_value({'n': n, 'mean': mean, 'q': q}) FILTER (metric = 'itl_ms') AS itl,
           any_value({'n': n, 'mean': mean, 'q': q}) FILTER (metric = 'itl_per_token_ms') AS per_token,
           any_value({'n': n, 'mean': mean, 'q': q}) FILTER (metric = 'e2e_ms') AS e2e
    FROM quantiles
    GROUP BY ALL
)
SELECT w.attempt_id, w."window", w.start_ns, w.end_ns, w.duration_s,
       CASE WHEN w.start_ns IS NOT NULL THEN coalesce(c.ok, 0) END AS ok,
       CASE WHEN w.start_ns IS NOT NULL THEN coalesce(c.failed, 0) END AS failed,
       CASE WHEN w.start_ns IS NOT NULL THEN coalesce(c.timed_out, 0) END AS timed_out,
       CASE WHEN w.start_ns IS NOT NULL THEN coalesce(c.cut, 0) END AS cut,
       i.input_tokens, i.output_tokens,
       i.input_tokens / w.duration_s AS input_tps,
       i.output_tokens / w.duration_s AS output_tps,
       (coalesce(i.input_tokens, 0) + i.output_tokens) / w.duration_s AS total_tps,
       i.ended / w.duration_s AS request_rate,
       coalesce(ttft.n, 0) AS ttft_ms_n, ttft.mean AS ttft_ms_mean, ttft.q[1] AS ttft_ms_p50, ttft.q[2] AS ttft_ms_p95, ttft.q[3] AS ttft_ms_p99,
       coalesce(tpot.n, 0) AS tpot_ms_n, tpot.mean AS tpot_ms_mean, tpot.q[1] AS tpot_ms_p50, tpot.q[2] AS tpot_ms_p95, tpot.q[3] AS tpot_ms_p99,
       coalesce(itl.n, 0) AS itl_ms_n, itl.mean AS itl_ms_mean, itl.q[1] AS itl_ms_p50, itl.q[2] AS itl_ms_p95, itl.q[3] AS itl_ms_p99,
       coalesce(e2e.n, 0) AS e2e_ms_n, e2e.mean AS e2e_ms_mean, e2e.q[1] AS e2e_ms_p50, e2e.q[2] AS e2e_ms_p95, e2e.q[3] AS e2e_ms_p99,
       coalesce(per_token.n, 0) AS itl_per_token_ms_n, per_token.mean AS itl_per_token_ms_mean,
       per_token.q[1] AS itl_per_token_ms_p50, per_token.q[2] AS itl_per_token_ms_p95, per_token.q[3] AS itl_per_token_ms_p99
FROM w
LEFT JOIN in_window i USING (attempt_id, "window")
LEFT JOIN counts c USING (attempt_id, "window")
LEFT JOIN latency l ON l.attempt_id = w.attempt_id AND l."window" = w."window" AND w.start_ns IS NOT NULL
ORDER BY w.attempt_id, w."window"
