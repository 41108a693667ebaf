-- live_nodes(): each node as it is seen now, with its clock against the owner's
SELECT n.node, n.state, n.detail, n.rtt_ms, n.boot_id, n.wall_ns, c.offset_ns, c.error_ns, c.measured_ns
FROM node_states n
LEFT JOIN live_clock(NULL) c ON c.node = n.node
ORDER BY n.node
