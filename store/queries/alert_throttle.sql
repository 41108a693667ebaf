-- alert_throttle(run, t0, t1, names := []::VARCHAR[], shifts := []::BIGINT[]): GPUs held back in a window of the run's clock: for heat or by a brake, or by their power cap to clocks below the others'
-- names, shifts: nodes whose clock is not the run's, and by how many ns it is ahead (live_clock says)
WITH s AS (
  SELECT node, gpu, wall_ns - coalesce(shifts[list_position(names, node)], 0) AS at_ns, string_split(throttle, ',') AS why, throttle, sm_mhz, temp_c, util_pct
  FROM gpu_samples WHERE run_id = run AND throttle IS NOT NULL AND wall_ns BETWEEN t0 + least(0, list_min(shifts)) AND t1 + greatest(0, list_max(shifts))
), free AS (
  SELECT median(sm_mhz) AS mhz FROM s WHERE throttle = '' AND util_pct > 5
), bad AS (
  SELECT s.*, free.mhz AS free_mhz,
         list_has_any(why, ['hw_slowdown', 'sw_thermal_slowdown', 'hw_thermal_slowdown', 'hw_power_brake_slowdown', 'throttled'])
         OR (list_contains(why, 'sw_power_cap') AND sm_mhz < 0.85 * free.mhz) AS held
  FROM s, free WHERE at_ns BETWEEN t0 AND t1
)
SELECT node, 'GPU ' || gpu AS subject, min(at_ns) FILTER (WHERE held) AS first_ns, max(at_ns) FILTER (WHERE held) AS last_ns,
       count(*) FILTER (WHERE held) AS n, gpu, arg_max(throttle, at_ns) FILTER (WHERE held) AS reason,
       max(temp_c) FILTER (WHERE held) AS temp_c, median(sm_mhz) FILTER (WHERE held) AS sm_mhz, max(free_mhz) AS free_mhz,
       100.0 * count(*) FILTER (WHERE held) / count(*) AS share_pct
FROM bad GROUP BY node, gpu HAVING count(*) FILTER (WHERE held) >= 3
ORDER BY node, gpu
