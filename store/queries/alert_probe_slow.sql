-- alert_probe_slow(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): nodes whose GPU or host samples came at less than a third of their pace, or not at all for 10 s in between, in a window of the run's clock
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT 'GPU' AS probe, node, mono_ns, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns FROM gpu_samples
  WHERE run_id = run AND source IN ('nvidia-smi', 'hy-smi', 'amd-smi', 'rocm-smi') AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
    AND node NOT IN (SELECT node FROM log_events WHERE run_id = run AND name IN ('source_failed', 'source_hung', 'gpu_lost') AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts)))
  GROUP BY ALL
  UNION ALL
  SELECT 'host', node, mono_ns, wall_ns - coalesce(shifts[list_position(names, node)], 0) FROM host_samples WHERE run_id = run AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), step AS (
  SELECT *, at_ns - lag(at_ns) OVER (PARTITION BY node, probe ORDER BY at_ns) AS gap_ns FROM s WHERE at_ns BETWEEN t0 AND t1
)
SELECT node, probe || ' samples' AS subject, min(at_ns) FILTER (WHERE gap_ns > 3000000000) AS first_ns,
       max(at_ns) FILTER (WHERE gap_ns > 3000000000) AS last_ns, count(*) FILTER (WHERE gap_ns > 3000000000) AS n,
       max(gap_ns) / 1e9 AS longest_s, median(gap_ns) / 1e9 AS every_s
FROM step GROUP BY node, probe HAVING max(gap_ns) > 10000000000 OR (median(gap_ns) > 3000000000 AND count(gap_ns) >= 5)
ORDER BY node, subject
