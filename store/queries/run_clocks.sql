-- run_clocks(run): how far each node's clock was from the owner's, best measurement
SELECT node, arg_min(offset_ns, error_ns) AS offset_ns, min(error_ns) AS error_ns, count(*) AS measured
FROM clock_offsets WHERE run_id = run GROUP BY node ORDER BY node
