-- node_states_now(): how each node is seen now
SELECT node, state, detail, rtt_ms, boot_id, wall_ns
FROM node_states
ORDER BY node
