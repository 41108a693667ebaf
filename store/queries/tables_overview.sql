-- tables_overview(): every table with its number of rows and what a row is
SELECT table_name AS name, estimated_size AS rows, comment
FROM duckdb_tables()
WHERE NOT internal AND database_name = current_database()
ORDER BY table_name
