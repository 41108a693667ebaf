-- thread_history(run, t0, t1, step, of_node, of_tid, names := []::VARCHAR[], shifts := []::BIGINT[]): one thread over a window of the run's clock by steps of so many seconds: share of a core it had, and share of the time it waited for one
WITH s AS (
  SELECT pid, run_ns_total, wait_ns_total, coalesce(mono_ns, wall_ns) AS tick_ns, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS moment
  FROM thread_samples WHERE run_id = run AND node = of_node AND tid = of_tid
    AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), gain AS (
  SELECT moment, run_ns_total - lag(run_ns_total) OVER w AS ran, wait_ns_total - lag(wait_ns_total) OVER w AS waited, tick_ns - lag(tick_ns) OVER w AS ns
  FROM s WHERE moment BETWEEN t0 AND t1 WINDOW w AS (PARTITION BY pid ORDER BY tick_ns)
)
SELECT moment // (step * 1000000000::BIGINT) * (step * 1000000000::BIGINT) AS at_ns, count(*) AS n, 100.0 * sum(ran) / nullif(sum(ns), 0) AS core_pct,
       100.0 * sum(waited) / nullif(sum(ns), 0) AS wait_pct
FROM gain WHERE ns > 0 AND ran >= 0 GROUP BY moment // (step * 1000000000::BIGINT) ORDER BY at_ns
