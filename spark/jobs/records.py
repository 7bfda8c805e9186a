"""Input of a job: a topic of a cluster, or segment directories."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession


def topic_records(
    spark: SparkSession, bootstrap_servers: str, topics: str, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Return all present records of these topics (names by comma), with headers."""
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap_servers)
    return reader.option("subscribe", topics).option("includeHeaders", "true").options(**(options or {})).load()


def log_records(
    spark: SparkSession, path: str, topics: str | None = None, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Return all records in the partition directories at `path`, with headers and positions."""
    reader = spark.read.format("barnabas-log").option("includeHeaders", "true").options(**(options or {}))
    return (reader if topics is None else reader.option("topics", topics)).load(path)
