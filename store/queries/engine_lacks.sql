-- engine_lacks(run): what the newest scrape of the engine had no metric for
SELECT arg_max(missing, wall_ns) AS missing, arg_max(engine, wall_ns) AS engine FROM engine_samples WHERE run_id = run AND source = 'metrics'
