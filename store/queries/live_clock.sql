-- live_clock(run): what to take from each node's wall clock to get the run's clock (node '' is the owner), newest known
WITH latest AS (
  SELECT node, arg_max(offset_ns, wall_ns) AS offset_ns, arg_max(error_ns, wall_ns) AS error_ns, max(wall_ns) AS measured_ns
  FROM clock_offsets
  WHERE run IS NULL OR run_id = run OR run_id IS NULL
  GROUP BY node
), base AS (
  SELECT coalesce(max(l.offset_ns), 0) AS offset_ns FROM latest l JOIN runs r ON r.clock_node = l.node WHERE r.run_id = run
)
SELECT l.node, l.offset_ns - b.offset_ns AS shift_ns, l.offset_ns, l.error_ns, l.measured_ns FROM latest l, base b
UNION ALL
SELECT '', -b.offset_ns, 0, 0, NULL FROM base b
