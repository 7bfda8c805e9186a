"""The demo's queries: flights into a state per aircraft in a compacted topic, and into Parquet by month."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

from . import host
from .jobs import table, topic_records

FLIGHTS, AIRCRAFT = "flights", "aircraft"
_COLUMNS = {"year": 0, "month": 1, "day": 2, "dep_delay": 5, "carrier": 9, "origin": 12, "dest": 13, "distance": 15}
_NUMBERS = ("year", "month", "day", "dep_delay", "distance")
_LOOK_AGAIN_S = 0.02
_STATE = "flights bigint, miles bigint, worst_delay bigint, last_seen string"


@dataclass(frozen=True)
class PipelineSettings:
    """`folder` receives the Parquet and the checkpoints; `pace` is the interval of batches."""

    bootstrap_servers: str
    folder: str
    pace: str = "1 second"


def flights(spark: SparkSession, settings: PipelineSettings, options: Mapping[str, str] | None = None) -> DataFrame:
    """Return the topic as a stream of columns."""
    named = {"startingOffsets": "earliest", "keyFormat": "string", "valueFormat": "string", **(options or {})}
    named |= {"kafka.bootstrap.servers": settings.bootstrap_servers, "subscribe": FLIGHTS}
    lines = spark.readStream.format("barnabas").options(**named).load()
    fields = functions.split("value", ",")
    columns = [fields[index].alias(name) for name, index in _COLUMNS.items()]
    parsed = lines.select(functions.col("key").alias("tailnum"), "partition", "offset", *columns)
    numbers = {name: functions.expr(f"try_cast({name} as bigint)") for name in _NUMBERS}
    return parsed.withColumns(numbers)


def keep_state(spark: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Maintain every aircraft's flights, miles, worst delay and last destination in the compacted topic `aircraft`.

    Spark does not support updates of a state for Python sinks, so `write` receives each batch of updates. Sorted by
    key, which is unique in a batch, a repeated batch is the same, so that the sink can detect it.
    """
    topic = {"kafka.bootstrap.servers": settings.bootstrap_servers, "topic": AIRCRAFT}
    once = {"delivery": "exactly-once", "writeId": f"{settings.folder}/state"}

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch.sortWithinPartitions("key").write.format("barnabas").mode("append")
        rows.options(**topic, **once, writeBatch=str(batch_id)).save()

    day = functions.format_string("%04d-%02d-%02d %s", "year", "month", "day", "dest")
    state = (
        flights(spark, settings)
        .where("tailnum is not null")
        .groupBy("tailnum")
        .agg(
            functions.count("*").alias("flights"),
            functions.sum("distance").alias("miles"),
            functions.max("dep_delay").alias("worst_delay"),
            functions.max(day).alias("last_seen"),
        )
    )
    rows = state.select(
        functions.col("tailnum").alias("key"),
        functions.to_json(functions.struct("flights", "miles", "worst_delay", "last_seen")).alias("value"),
    )
    writer = rows.writeStream.foreachBatch(write).outputMode("update").queryName("state of aircraft")
    writer = writer.option("checkpointLocation", f"{settings.folder}/checkpoints/state")
    return writer.trigger(processingTime=settings.pace).start()


def keep_parquet(spark: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Write every flight as a row of Parquet, by month."""
    writer = flights(spark, settings).writeStream.format("parquet").partitionBy("month").queryName("flights to Parquet")
    writer = writer.option("path", f"{settings.folder}/flights")
    writer = writer.option("checkpointLocation", f"{settings.folder}/checkpoints/flights")
    return writer.trigger(processingTime=settings.pace).start()


def stop_between_batches(query: StreamingQuery, *, patience_s: float) -> None:
    """Let a running batch finish, so that Spark logs no error; after `patience_s` stop it anyway."""
    deadline = host.monotonic() + patience_s
    while query.isActive and query.status["isTriggerActive"] and host.monotonic() < deadline:
        host.pause(_LOOK_AGAIN_S)
    query.stop()


def state_table(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Return the state in its topic: the state of a consumer that has lost everything and reads it back."""
    latest = table(topic_records(spark, settings.bootstrap_servers, AIRCRAFT))
    state = functions.from_json(functions.col("value").cast("string"), _STATE).alias("state")
    return latest.select(functions.col("key").cast("string").alias("tailnum"), state).select("tailnum", "state.*")


def differences(spark: SparkSession, settings: PipelineSettings) -> int:
    """Return the number of aircraft whose state in the topic differs from the Parquet; 0 if all are equal."""
    written = spark.read.parquet(f"{settings.folder}/flights").where("tailnum is not null")
    expected = written.groupBy("tailnum").agg(
        functions.count("*").alias("flights"), functions.sum("distance").alias("miles")
    )
    found = state_table(spark, settings).select("tailnum", "flights", "miles")
    return int(expected.exceptAll(found).count() + found.exceptAll(expected).count())
