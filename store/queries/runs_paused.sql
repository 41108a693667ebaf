-- runs_paused(): unfinished runs that an operator has paused, who and when; the last of pause and resume counts
SELECT run_id, who AS paused_by, wall_ns AS since_ns
FROM (
    SELECT r.run_id, o.kind, o.who, o.wall_ns
    FROM runs r
    JOIN orders o ON o.state = 'accepted'
        AND ((o.kind = 'pause_run' AND o.run_id = r.run_id) OR (o.kind = 'resume' AND coalesce(o.run_id, r.run_id) = r.run_id))
    WHERE r.state <> 'done'
    QUALIFY row_number() OVER (PARTITION BY r.run_id ORDER BY o.wall_ns DESC, o.order_id DESC) = 1
)
WHERE kind = 'pause_run'
ORDER BY run_id
