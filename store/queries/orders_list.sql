-- orders_list(newest := 100): what operators asked for, newest first
SELECT order_id, wall_ns, who, kind, params, state, detail, run_id
FROM orders
ORDER BY wall_ns DESC, order_id DESC
LIMIT newest
