"""The ground floor: records, schema, queries, analysis, export. Knows neither SSH nor Textual."""
