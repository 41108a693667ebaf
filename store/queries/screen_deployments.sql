-- screen_deployments(): each deployment's newest server life and its last finished attempt
WITH life AS (
  SELECT * FROM lives QUALIFY row_number() OVER (PARTITION BY deployment ORDER BY started_wall_ns DESC NULLS LAST, life_id DESC) = 1
), done AS (
  SELECT r.deployment, a.* FROM attempts a JOIN runs r USING (run_id)
  WHERE a.state = 'done' AND r.deployment IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY r.deployment ORDER BY a.ended_wall_ns DESC NULLS LAST, a.ordinal DESC) = 1
)
SELECT coalesce(l.deployment, d.deployment) AS deployment, l.life_id, l.state, l.outcome AS life_outcome, l.detail AS life_detail,
       l.engine, l.version, l.external, l.simulated, l.started_wall_ns, l.ready_wall_ns, l.ended_wall_ns,
       d.run_id, d.attempt_id, d.case_name, d.concurrency, d.outcome, d.ended_wall_ns AS result_wall_ns
FROM life l
FULL JOIN done d USING (deployment)
ORDER BY 1
