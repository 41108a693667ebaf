-- thread_numa(run, t0, t1, of_node := NULL, names := []::VARCHAR[], shifts := []::BIGINT[]): where the pages of the servers' processes lie, newest of a window of the run's clock; away_pct: not on the node that holds most
WITH s AS (
  SELECT * FROM numa_samples WHERE run_id = run AND pid IS NOT NULL AND wall_ns - coalesce(shifts[list_position(names, node)], 0) BETWEEN t0 AND t1 AND (of_node IS NULL OR node = of_node)
  QUALIFY wall_ns = max(wall_ns) OVER (PARTITION BY node, pid)
)
SELECT node, pid, any_value(process) AS process, any_value(cpus) AS cpus, sum(pages_bytes)::BIGINT AS bytes, arg_max(numa, pages_bytes) AS home,
       100.0 * (sum(pages_bytes) - max(pages_bytes)) / nullif(sum(pages_bytes), 0) AS away_pct,
       string_agg(numa || ': ' || round(pages_bytes / 1073741824, 1) || ' GiB', ', ' ORDER BY numa) AS by_node, any_value(missing) AS missing, max(wall_ns) AS wall_ns
FROM s GROUP BY node, pid ORDER BY away_pct DESC NULLS LAST, node, pid
