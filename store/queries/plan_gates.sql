-- plan_gates(): the newest verdict of every check by node, where it is not good
SELECT node, name, status, detail, fix, wall_ns
FROM (SELECT * FROM gates QUALIFY row_number() OVER (PARTITION BY node, name ORDER BY wall_ns DESC) = 1)
WHERE status IN ('fail', 'warn')
ORDER BY status, node, name
