-- run_gates(run): verdicts of checks and gates of a run
SELECT wall_ns, node, name, status, detail, fix, override_why, life_id FROM gates WHERE run_id = run ORDER BY wall_ns
