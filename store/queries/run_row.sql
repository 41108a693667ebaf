-- run_row(run): the row of one run
SELECT * FROM runs WHERE run_id = run
