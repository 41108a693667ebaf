-- manifest_diff(run_a, run_b): every variable in which two runs differ: its value in a and in b, NULL where one has none; times, ids and figures of the moment are noise
WITH a AS (SELECT name, node, rank, value, source FROM run_manifest(run_a)),
     b AS (SELECT name, node, rank, value, source FROM run_manifest(run_b))
SELECT coalesce(a.name, b.name) AS name, coalesce(a.node, b.node) AS node, coalesce(a.rank, b.rank) AS rank, a.value AS a, b.value AS b,
       coalesce(a.source, b.source) AS source,
       CASE WHEN regexp_matches(coalesce(a.name, b.name), '^(before|after)\.|boot_id|uptime|host\.load|MemAvailable|SwapFree|^disk\.|\.pid$|random_seed|(^|[._])port$|start_time|^clock\.')
            THEN 'noise' WHEN coalesce(a.source, b.source) = 'asked' THEN 'asked' ELSE 'found' END AS kind,
       concat_ws('/', coalesce(a.name, b.name), coalesce(a.node, b.node), coalesce(a.rank, b.rank)) AS key
FROM a FULL JOIN b ON a.name = b.name AND a.node IS NOT DISTINCT FROM b.node AND a.rank IS NOT DISTINCT FROM b.rank
WHERE a.value IS DISTINCT FROM b.value
ORDER BY list_position(['asked', 'found', 'noise'], kind), 1, 2, 3
