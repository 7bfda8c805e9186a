"""A compacted topic as a table: the latest value of every key, the recovered state."""

from __future__ import annotations

from pyspark.sql import DataFrame, functions

from .compact import latest_per_key


def table(records: DataFrame) -> DataFrame:
    """Return one row per key with its latest value, and its position and time; deleted keys are omitted.

    A key in several partitions, after partitions were added to the topic, has the value with the latest time. Two
    shuffles, the second one only of the latest records.
    """
    latest = latest_per_key(records)
    record = functions.struct("value", "partition", "offset", "timestamp")
    order = functions.struct("timestamp", "partition")
    rows = latest.groupBy("topic", "key").agg(functions.max_by(record, order).alias("record"))
    return rows.select("topic", "key", "record.*").where("value is not null")
