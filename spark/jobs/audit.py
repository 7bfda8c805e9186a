"""Contents of logs by partition: counts, keys, repeats, tombstones, gaps, times, damage."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions


def audit(records: DataFrame) -> DataFrame:
    """Return one row per partition.

    `repeats` are records that compaction would remove, `gaps` offsets between the first and the last without a record,
    as compaction and transaction markers leave them. One shuffle, by partition and key, of counts only.
    """
    damaged = functions.col("error").isNotNull() if "error" in records.columns else functions.lit(False)
    size = functions.coalesce(functions.length("key"), functions.lit(0)) + functions.coalesce(
        functions.length("value"), functions.lit(0)
    )
    sound = ~damaged
    by_key = records.groupBy("topic", "partition", "key").agg(
        _count(sound).alias("records"),
        _count(sound & functions.col("value").isNull()).alias("tombstones"),
        _count(damaged).alias("damaged"),
        functions.min(functions.when(sound, functions.col("offset"))).alias("first"),
        functions.max(functions.when(sound, functions.col("offset"))).alias("last"),
        functions.min(functions.when(sound, functions.col("timestamp"))).alias("earliest"),
        functions.max(functions.when(sound, functions.col("timestamp"))).alias("latest"),
        functions.sum(size).alias("bytes"),
    )
    keyed = functions.col("key").isNotNull()
    found = by_key.groupBy("topic", "partition").agg(
        functions.sum("records").alias("records"),
        functions.sum(functions.when(keyed, functions.lit(1)).otherwise(0)).alias("keys"),
        functions.sum(functions.when(keyed, functions.col("records") - 1).otherwise(0)).alias("repeats"),
        functions.sum(functions.when(~keyed, functions.col("records")).otherwise(0)).alias("keyless"),
        functions.sum("tombstones").alias("tombstones"),
        functions.min("first").alias("first_offset"),
        functions.max("last").alias("last_offset"),
        functions.min("earliest").alias("earliest"),
        functions.max("latest").alias("latest"),
        functions.sum("bytes").alias("bytes"),
        functions.sum("damaged").alias("damaged"),
    )
    gaps = functions.col("last_offset") - functions.col("first_offset") + 1 - functions.col("records")
    return found.withColumn("gaps", gaps).orderBy("topic", "partition")


def _count(condition: Column) -> Column:
    return functions.sum(functions.when(condition, functions.lit(1)).otherwise(0))
