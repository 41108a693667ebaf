-- live_phases(run): the phases of a run's attempts in order of time, on the run's clock
SELECT p.attempt_id, p.name, p.start_wall_ns - coalesce(c.shift_ns, 0) AS start_ns,
       p.end_wall_ns - coalesce(c.shift_ns, 0) AS end_ns
FROM phases p
LEFT JOIN live_clock(run) c ON c.node = coalesce(p.node, '')
WHERE p.run_id = run
ORDER BY start_ns, p.name
