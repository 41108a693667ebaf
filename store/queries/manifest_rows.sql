-- manifest_rows(of_run): the environment of a run, newest value of each name, node and rank; `snapshot` values apart from those that stay
SELECT name, value, node, rank, source, life_id, split_part(name, '.', 1) AS topic,
       concat_ws('/', name, node, rank) AS key
FROM run_manifest(of_run)
