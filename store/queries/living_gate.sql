-- living_gate(): the newest verdict of the RDMA gate on a server that is up
SELECT g.node, g.name, g.status, g.detail, g.fix, g.wall_ns, g.life_id
FROM gates g JOIN lives l ON l.life_id = g.life_id
WHERE g.name = 'rdma' AND l.state = 'ready'
ORDER BY g.wall_ns DESC
LIMIT 1
