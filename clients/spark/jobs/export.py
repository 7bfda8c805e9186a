"""A topic as a table, each record once: the checkpoint says what was written, and the sink what of that counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

_RECORDS_PER_FILE = "5000000"
"""A task writes one file for each topic and date, and small records need not be spread over more of them for speed."""


@dataclass(frozen=True)
class ExportSettings:
    """`interval` None writes what is there now and ends; a time such as "1 minute" goes on with that pace.

    `batch_bytes` is about what one batch brings, and so the most that one file gets. `file_format` is Parquet, ORC, or
    Delta where Spark has its jars, and `write_options` go to its writer.
    """

    interval: str | None = None
    batch_bytes: int = 256 << 20
    options: Mapping[str, str] = field(default_factory=dict)
    file_format: str = "parquet"
    write_options: Mapping[str, str] = field(default_factory=dict)


def export(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: str,
    path: str,
    settings: ExportSettings | None = None,
) -> StreamingQuery:
    """Start writing topics to `path`, in folders by topic and date (UTC) of the records; nothing is shuffled.

    The checkpoint is `path`/_checkpoint. Read the result with Spark's own reader of the format on `path`: it goes by
    the list of finished files, which a task that died cannot have added to.
    """
    settings = settings or ExportSettings()
    options = {
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxBytesPerTrigger": str(settings.batch_bytes),
        "maxRecordsPerPartition": _RECORDS_PER_FILE,
        **settings.options,
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topics,
    }
    records = spark.readStream.format("barnabas").options(**options).load()
    dated = records.withColumn("date", functions.to_date("timestamp"))
    writer = dated.writeStream.format(settings.file_format).options(**settings.write_options)
    writer = writer.partitionBy("topic", "date").option("path", path)
    writer = writer.option("checkpointLocation", f"{path.rstrip('/')}/_checkpoint").queryName(f"export {topics}")
    if settings.interval is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=settings.interval).start()
