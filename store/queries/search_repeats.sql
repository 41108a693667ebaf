-- search_repeats(attempts): what a search takes from each attempt of a list: TPS of its steady window (of all it sent where there is none) and what the engine held back meanwhile
WITH m AS (
    FROM metrics_of(attempts)
    WHERE start_ns IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY attempt_id ORDER BY "window" DESC) = 1  -- steady before all
), clock AS (  -- the client's wall clock minus its monotonic one
    SELECT attempt_id, min(start_wall_ns - start_mono_ns) AS shift_ns
    FROM phases
    WHERE attempt_id IN (SELECT unnest(attempts)) AND start_mono_ns IS NOT NULL
    GROUP BY attempt_id
), samples AS (  -- DP ranks of one look added up; the engine's metrics are preferred to what its log says
    SELECT a.attempt_id, e.wall_ns, coalesce(e.source, '') = 'log' AS from_log,
           sum(e.running) AS running, sum(e.waiting) AS waiting, max(e.kv_usage) AS kv_usage,
           sum(e.preemptions_total) AS preemptions_total
    FROM attempts a
    JOIN m USING (attempt_id)
    JOIN clock c USING (attempt_id)
    JOIN engine_samples e ON e.life_id = a.life_id AND e.node = a.node
     AND e.wall_ns BETWEEN m.start_ns + c.shift_ns AND m.end_ns + c.shift_ns
    GROUP BY ALL
), tops AS (
    SELECT *, max(running) OVER (PARTITION BY attempt_id, from_log) AS running_top
    FROM samples
    QUALIFY from_log = min(from_log) OVER (PARTITION BY attempt_id)
), engine AS (
    SELECT attempt_id, count(*) AS samples, median(waiting) AS waiting, max(kv_usage) AS kv_top,
           max(preemptions_total) - min(preemptions_total) AS preempted,
           any_value(running_top) AS running_top,
           count(*) FILTER (running = running_top) / nullif(count(running), 0) AS running_top_share
    FROM tops
    GROUP BY attempt_id
)
SELECT a.attempt_id, a.ordinal, a.concurrency, a.request_rate, a.repeat, a.life_id, a.job_id, a.outcome, a.detail, m."window",
       m.input_tps, m.output_tps, e.samples, e.waiting, e.running_top, e.running_top_share, e.kv_top, e.preempted
FROM attempts a
LEFT JOIN m USING (attempt_id)
LEFT JOIN engine e USING (attempt_id)
WHERE a.attempt_id IN (SELECT unnest(attempts))
ORDER BY a.ordinal, a.attempt_id
