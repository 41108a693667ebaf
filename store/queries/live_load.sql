-- live_load(attempt, t0, t1): the load client second by second (node clock): what is in flight, and tokens and requests a second
SELECT wall_ns, in_flight, sent, done, failed, input_tokens, output_tokens, loop_lag_ms, cpu_pct, saturated,
       (output_tokens - lag(output_tokens) OVER w) * 1e9 / nullif(mono_ns - lag(mono_ns) OVER w, 0) AS output_tps,
       (input_tokens - lag(input_tokens) OVER w) * 1e9 / nullif(mono_ns - lag(mono_ns) OVER w, 0) AS input_tps,
       (done - lag(done) OVER w) * 1e9 / nullif(mono_ns - lag(mono_ns) OVER w, 0) AS done_per_s
FROM load_ticks
WHERE attempt_id = attempt AND wall_ns BETWEEN t0 AND t1
WINDOW w AS (ORDER BY mono_ns)
ORDER BY mono_ns
