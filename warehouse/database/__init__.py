"""The DuckDB file: connections, schema, reference tables, views and the sink for rows."""
