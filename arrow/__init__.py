"""Topics and segment files as Arrow: record batches for Polars, DuckDB, pandas and pyarrow, without Spark or a JVM."""
