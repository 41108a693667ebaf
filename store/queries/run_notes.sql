-- run_notes(run): what people wrote about a run
SELECT wall_ns, who, text FROM notes WHERE run_id = run ORDER BY wall_ns
