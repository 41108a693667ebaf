-- run_spread(run): how far the repeats of each case agree: TPS (input for OSL 1, else output) of the attempts that were carried through, CV with ddof 1, and what may have disturbed them
WITH good AS (
    SELECT attempt_id, case_name, ordinal, osl, life_id, node, started_wall_ns AS t0, ended_wall_ns AS t1, flags
    FROM attempts
    WHERE run_id = run AND state = 'done' AND outcome IN ('OK', 'TTFT_SLO_EXCEEDED', 'TPOT_SLO_EXCEEDED', 'SLO_EXCEEDED')
), m AS (  -- steady before all
    SELECT attempt_id, input_tps, output_tps
    FROM metrics_of((SELECT list(attempt_id) FROM attempts WHERE run_id = run AND state = 'done'))
    WHERE start_ns IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY attempt_id ORDER BY "window" DESC) = 1
), rates AS (
    SELECT g.case_name, min(g.ordinal) AS ordinal, count(tps) AS repeats, avg(tps) AS mean_tps,
           100 * stddev_samp(tps) / nullif(avg(tps), 0) AS spread_pct, count(DISTINCT g.life_id) AS lives,
           count(*) FILTER (list_contains(g.flags, 'client_saturated')) AS client_saturated,
           count(*) FILTER (list_contains(g.flags, 'cache_warm')) AS cache_warm
    FROM good g
    JOIN (SELECT attempt_id, CASE WHEN osl = 1 THEN input_tps ELSE output_tps END AS tps FROM m JOIN good USING (attempt_id)) r
      USING (attempt_id)
    GROUP BY g.case_name
), gpus AS (
    SELECT case_name, string_agg(DISTINCT throttle, ', ') FILTER (throttle <> '' AND util_pct > 10) AS throttled,
           100 * stddev_samp(mhz) / nullif(avg(mhz), 0) AS clock_spread_pct
    FROM (
        SELECT g.case_name, s.throttle, s.util_pct,
               avg(s.sm_mhz) FILTER (s.util_pct > 10) OVER (PARTITION BY g.attempt_id) AS mhz
        FROM good g JOIN gpu_samples s ON s.run_id = run AND s.wall_ns BETWEEN g.t0 AND g.t1
    )
    GROUP BY case_name
), engine AS (
    SELECT case_name, sum(preemptions) AS preemptions, count(*) FILTER (served > 1.1 * mine + 5) AS with_other_traffic
    FROM (
        SELECT g.case_name, g.attempt_id, max(e.preemptions_total) - min(e.preemptions_total) AS preemptions,
               max(e.requests_total) - min(e.requests_total) AS served,
               (SELECT count(*) FROM requests r WHERE r.attempt_id = g.attempt_id) AS mine
        FROM good g JOIN engine_samples e ON e.life_id = g.life_id AND e.node = g.node AND e.wall_ns BETWEEN g.t0 AND g.t1
        WHERE coalesce(e.source, '') <> 'log' AND e.dp_rank IS NULL
        GROUP BY ALL
    )
    GROUP BY case_name
)
SELECT r.*, g.throttled, g.clock_spread_pct, e.preemptions, e.with_other_traffic,
       list_filter([
           CASE WHEN g.throttled IS NOT NULL THEN 'GPU clocks were held down: ' || g.throttled END,
           CASE WHEN g.clock_spread_pct > 2 THEN 'GPU clocks differed by ' || round(g.clock_spread_pct, 1) || ' % between repeats' END,
           CASE WHEN e.preemptions > 0 THEN e.preemptions::BIGINT || ' preemptions: the KV cache was full' END,
           CASE WHEN e.with_other_traffic > 0 THEN 'the server answered others too in ' || e.with_other_traffic || ' repeats' END,
           CASE WHEN r.client_saturated > 0 THEN 'the load client was the bottleneck in ' || r.client_saturated || ' repeats' END,
           CASE WHEN r.cache_warm > 0 THEN 'the prefix cache was warm in ' || r.cache_warm || ' repeats' END,
           CASE WHEN r.lives > 1 THEN 'over ' || r.lives || ' server lives' END
       ], lambda w: w IS NOT NULL) AS why
FROM rates r
LEFT JOIN gpus g USING (case_name)
LEFT JOIN engine e USING (case_name)
ORDER BY r.ordinal
