-- attempt_windows(attempt): where the windows `all` and `steady` of an attempt begin and end, on the client's monotonic clock
SELECT "window", start_ns, end_ns, duration_s
FROM windows_of([attempt])
ORDER BY "window"
