"""The latest record of every key, as the log cleaner keeps it, for any number of keys."""

from __future__ import annotations

from pyspark.sql import DataFrame, functions

_RECORD = ("offset", "value", "timestamp", "timestampType", "headers")


def latest_per_key(records: DataFrame) -> DataFrame:
    """Return the records that the log cleaner would keep: the last of each key in each partition, none without a key.

    Tombstones are kept. One shuffle, by partition and key, of the records after each task has dropped its own repeats.
    """
    columns = [functions.col(name) for name in _RECORD if name in records.columns]
    latest = (
        records.where("key is not null")
        .groupBy("topic", "partition", "key")
        .agg(functions.max_by(functions.struct(*columns), functions.col("offset")).alias("record"))
    )
    return latest.select("topic", "partition", "key", "record.*")


def compact(
    records: DataFrame,
    path: str,
    *,
    drop_tombstones: bool = False,
    file_format: str = "segments",
    compression: str = "none",
    segment_bytes: int = 1 << 30,
) -> None:
    """Write the latest record of every key to `path`: as segments that a broker can serve, or as a table of Parquet.

    Segments keep offsets and timestamps. A second shuffle sorts the remaining records by offset, one range per task.
    With `drop_tombstones` keys whose last record has no value are omitted.
    """
    latest = latest_per_key(records)
    if drop_tombstones:
        latest = latest.where("value is not null")
    if file_format != "segments":
        latest.write.format(file_format).mode("append").partitionBy("topic").save(path)
        return
    ordered = latest.repartitionByRange("topic", "partition", "offset").sortWithinPartitions(
        "topic", "partition", "offset"
    )
    writer = ordered.write.format("barnabas-log").mode("append").option("compression", compression)
    writer.option("segmentBytes", str(segment_bytes)).save(path)
