"""A topic as a table, each record once: the checkpoint has the written offsets, and the sink the valid files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

_RECORDS_PER_FILE = "5000000"
"""A task writes one file for each topic and date; splitting small records over more files is not faster."""
_FOLLOWED = "followed"
"""File in the checkpoint, which `barnabas table follow` writes before its first commit to the table."""


@dataclass(frozen=True)
class ExportSettings:
    """`interval` None writes the existing records and ends; a time such as "1 minute" continues at that interval.

    `batch_bytes` is the approximate size of one batch, and so the maximum of one file. `file_format` is Parquet, ORC,
    or Delta if Spark has its jars, and `write_options` are passed to its writer.
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
    """Start writing topics to `path`, in directories by topic and date (UTC) of the records, without a shuffle.

    The checkpoint is `path`/_checkpoint. Read the result with Spark's own reader of the format on `path`: it uses the
    list of finished files, which excludes files of failed tasks. Raises ValueError if `barnabas table follow` has
    continued the table.
    """
    settings = settings or ExportSettings()
    checkpoint = f"{path.rstrip('/')}/_checkpoint"
    if Path(checkpoint.removeprefix("file://"), _FOLLOWED).exists():
        raise ValueError(
            f"{path}: `barnabas table follow` has continued this table, and Spark would write its records again. "
            "Continue with `barnabas table follow`, or export to another path"
        )
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
    writer = writer.option("checkpointLocation", checkpoint).queryName(f"export {topics}")
    if settings.interval is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=settings.interval).start()
