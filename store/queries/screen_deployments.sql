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
       d.run_id, d.attempt_id, d.case_name, d.concurrency, d.outcome, d.ended_wall_ns AS result_wall_ns,
       t.output_tps, t.tpot_p95, t.ttft_p95
FROM life l
FULL JOIN done d USING (deployment)
LEFT JOIN LATERAL (
  SELECT sum(output_tokens) * 1e9 / nullif(max(last_ns) - min(sent_ns), 0) AS output_tps,
         quantile_cont(CASE WHEN output_tokens >= 2 THEN (last_ns - first_ns) / 1e6 / (output_tokens - 1) END, 0.95) AS tpot_p95,
         quantile_cont((first_ns - sent_ns) / 1e6, 0.95) AS ttft_p95
  FROM requests q WHERE q.attempt_id = d.attempt_id AND q.status = 'ok' AND q.measured
) t ON true
ORDER BY 1
