-- tables_overview(): every table with its number of rows and what a row is
SELECT name, rows, comment
FROM (
    SELECT 'artifacts' AS name, count(*) AS rows FROM artifacts
    UNION ALL SELECT 'attempts', count(*) FROM attempts
    UNION ALL SELECT 'batches', count(*) FROM batches
    UNION ALL SELECT 'clock_offsets', count(*) FROM clock_offsets
    UNION ALL SELECT 'commands', count(*) FROM commands
    UNION ALL SELECT 'cpu_samples', count(*) FROM cpu_samples
    UNION ALL SELECT 'engine_samples', count(*) FROM engine_samples
    UNION ALL SELECT 'findings', count(*) FROM findings
    UNION ALL SELECT 'gates', count(*) FROM gates
    UNION ALL SELECT 'gpu_processes', count(*) FROM gpu_processes
    UNION ALL SELECT 'gpu_rollups', count(*) FROM gpu_rollups
    UNION ALL SELECT 'gpu_samples', count(*) FROM gpu_samples
    UNION ALL SELECT 'host_samples', count(*) FROM host_samples
    UNION ALL SELECT 'jobs', count(*) FROM jobs
    UNION ALL SELECT 'lives', count(*) FROM lives
    UNION ALL SELECT 'load_ticks', count(*) FROM load_ticks
    UNION ALL SELECT 'log_events', count(*) FROM log_events
    UNION ALL SELECT 'log_lines', count(*) FROM log_lines
    UNION ALL SELECT 'node_states', count(*) FROM node_states
    UNION ALL SELECT 'notes', count(*) FROM notes
    UNION ALL SELECT 'numa_samples', count(*) FROM numa_samples
    UNION ALL SELECT 'offsets', count(*) FROM offsets
    UNION ALL SELECT 'orders', count(*) FROM orders
    UNION ALL SELECT 'phases', count(*) FROM phases
    UNION ALL SELECT 'points', count(*) FROM points
    UNION ALL SELECT 'rail_rollups', count(*) FROM rail_rollups
    UNION ALL SELECT 'rail_samples', count(*) FROM rail_samples
    UNION ALL SELECT 'requests', count(*) FROM requests
    UNION ALL SELECT 'runs', count(*) FROM runs
    UNION ALL SELECT 'schema_version', count(*) FROM schema_version
    UNION ALL SELECT 'thread_samples', count(*) FROM thread_samples
    UNION ALL SELECT 'variables', count(*) FROM variables
)
JOIN duckdb_tables() AS t ON t.table_name = name AND t.database_name = current_database() AND NOT t.internal
ORDER BY name
