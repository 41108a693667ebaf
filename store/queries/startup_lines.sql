-- startup_lines(of_life): the newest lines of every rank of a life, for whoever waits for it
SELECT l.node, l.rank, l.wall_ns, l.text
FROM log_lines l JOIN jobs j USING (job_id)
WHERE j.life_id = of_life AND j.kind = 'server' AND trim(l.text) <> ''
QUALIFY row_number() OVER (PARTITION BY l.job_id ORDER BY l.wall_ns DESC, l."offset" DESC) <= 3
ORDER BY l.wall_ns DESC, l.node
