-- run_requests(run): every request of a run in the order it was sent
SELECT r.* FROM requests r JOIN attempts a USING (attempt_id)
WHERE r.run_id = run
ORDER BY a.ordinal, r.attempt_id, r.sent_ns, r.request_id
