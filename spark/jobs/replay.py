"""Parquet back into a topic, in the original order of the records."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

_COLUMNS = ("key", "value", "headers", "timestamp", "partition")


def replay(
    records: DataFrame,
    bootstrap_servers: str,
    topic: str,
    *,
    keep_partitions: bool = False,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write records, such as the output of `export`, to `topic`, with their timestamps.

    One shuffle, by partition, so that the records of each old partition are written in the order of their offsets. Keys
    select the new partitions, unless the old ones are kept. `options` are options of the sink.
    """
    ordered = records
    if {"partition", "offset"} <= set(records.columns):
        ordered = records.repartition("partition").sortWithinPartitions("partition", "offset")
    wanted = [name for name in _COLUMNS if name in records.columns and (name != "partition" or keep_partitions)]
    writer = ordered.select(*wanted).write.format("barnabas").mode("append")
    named = {**(options or {}), "kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    writer.options(**named).save()
