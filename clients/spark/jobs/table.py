"""A compacted topic as a table: the latest value of every key, the state that a crash took."""

from __future__ import annotations

from pyspark.sql import DataFrame, functions

from .compact import latest_per_key


def table(records: DataFrame) -> DataFrame:
    """One row a key with its latest value, and where and when that was written; deleted keys are left out.

    A key that is in several partitions, since the topic was given more of them, has the value with the latest time.
    Two shuffles, the second one only of the latest records.
    """
    latest = latest_per_key(records)
    record = functions.struct("value", "partition", "offset", "timestamp")
    order = functions.struct("timestamp", "partition")
    rows = latest.groupBy("topic", "key").agg(functions.max_by(record, order).alias("record"))
    return rows.select("topic", "key", "record.*").where("value is not null")
