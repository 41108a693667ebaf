-- client_figures(run): what another load client says of its own attempt beside what its requests say by our definitions (window `all`); apart_pct is how far its figure is from ours
WITH own AS (
    SELECT a.attempt_id, a.ordinal, a.case_name, a.repeat, a.client, v.figure, v.own
    FROM (
        SELECT split_part(name, '.', 2) AS short, replace(substr(name, length(split_part(name, '.', 2)) + 9), '.', '_') AS figure,
               try_cast(value AS DOUBLE) AS own
        FROM variables
        WHERE run_id = run AND name LIKE 'client.a%.%'
    ) v
    JOIN attempts a ON a.run_id = run AND a.attempt_id = run || '.' || v.short
    WHERE v.own IS NOT NULL
), ours AS (
    UNPIVOT (
        SELECT attempt_id, ok::DOUBLE AS requests_ok, failed::DOUBLE AS requests_failed,
               COLUMNS(c -> c IN ('input_tokens', 'output_tokens', 'duration_s', 'input_tps', 'output_tps', 'total_tps', 'request_rate')
                            OR regexp_matches(c, '^(ttft|tpot|itl|e2e)_ms_'))::DOUBLE
        FROM metrics_of((SELECT list(attempt_id) FROM attempts WHERE run_id = run AND client <> 'loadgen'))
        WHERE "window" = 'all'
    )
    ON COLUMNS(* EXCLUDE (attempt_id))
    INTO NAME figure VALUE ours
)
SELECT own.attempt_id, case_name, repeat, client, figure, own, ours, 100 * (own - ours) / nullif(ours, 0) AS apart_pct
FROM own LEFT JOIN ours USING (attempt_id, figure)
ORDER BY own.ordinal, figure
