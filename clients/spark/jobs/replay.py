"""Parquet back into a topic, in the order in which the records once stood."""

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
    """Write records, such as `export` made, to `topic`, with their timestamps.

    One shuffle, by partition, so that the records of each old partition come in the order of their offsets. New
    partitions go by the keys, unless the old ones are kept. `options` are those of the sink.
    """
    ordered = records
    if {"partition", "offset"} <= set(records.columns):
        ordered = records.repartition("partition").sortWithinPartitions("partition", "offset")
    wanted = [name for name in _COLUMNS if name in records.columns and (name != "partition" or keep_partitions)]
    writer = ordered.select(*wanted).write.format("barnabas").mode("append")
    named = {**(options or {}), "kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    writer.options(**named).save()
