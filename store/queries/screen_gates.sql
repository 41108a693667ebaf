-- screen_gates(run): every verdict of checks and gates of a run, or of checks with no run, newest first
SELECT node, name, status, detail, fix, wall_ns, override_why FROM gates
WHERE run_id IS NOT DISTINCT FROM run
QUALIFY row_number() OVER (PARTITION BY node, name ORDER BY wall_ns DESC) = 1
ORDER BY list_position(['fail', 'unknown', 'warn', 'pass', 'not_applicable'], status), node, name
