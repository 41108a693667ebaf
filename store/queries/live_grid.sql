-- live_grid(run): the cases of a run in order of work: repeats asked, done and failed, how far their TPS agrees, whether that is above the 3 % bar, and what may have disturbed them
SELECT a.case_name, min(a.ordinal) AS ordinal, any_value(a.isl) AS isl, any_value(a.osl) AS osl,
       any_value(a.concurrency) AS concurrency, any_value(a.request_rate) AS request_rate,
       count(*) FILTER (a.state <> 'void') AS asked, count(*) FILTER (a.state = 'done') AS done,
       count(*) FILTER (a.state = 'done' AND a.outcome <> 'OK') AS not_ok,
       any_value(s.repeats) AS counted, any_value(s.mean_tps) AS mean_tps, any_value(s.spread_pct) AS spread_pct,
       any_value(s.spread_pct) > 3 AS unstable, any_value(s.why) AS why
FROM attempts a
LEFT JOIN run_spread(run) s USING (case_name)
WHERE a.run_id = run
GROUP BY a.case_name
ORDER BY ordinal, a.case_name
