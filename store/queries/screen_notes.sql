-- screen_notes(run): what operators wrote about a run
SELECT wall_ns, who, text FROM notes WHERE run_id = run ORDER BY wall_ns
