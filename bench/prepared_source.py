"""`format("prepared")`: the same Arrow batch again and again, an upper bound for the speed of a Python data source.

Accepts the options of `barnabas-log`, and `rows`. Each task decodes the first batch of its part once. The remaining
work is Spark's: it transfers Arrow batches from Python to the JVM, and converts them to rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.spark import host
from barnabas.spark.log_reader import BarnabasLogReader
from barnabas.spark.log_source import BarnabasLogSource


class PreparedSource(BarnabasLogSource):
    @classmethod
    def name(cls) -> str:
        return "prepared"

    def reader(self, schema: StructType) -> DataSourceReader:
        host.spare_next_task()
        return PreparedReader(dict(self.options), schema)


class PreparedPartition(InputPartition):
    """A part of the segments, and the number of rows to make of its first batch."""

    def __init__(self, part: InputPartition, rows: int) -> None:
        super().__init__(rows)
        self.part = part
        self.rows = rows


class PreparedReader(BarnabasLogReader):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._row_count = int(options["rows"])

    def partitions(self) -> list[InputPartition]:
        parts = super().partitions()
        # The count is stored in each part, because Spark plans and reads with different reader objects.
        return [PreparedPartition(part, self._row_count // len(parts)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = next(iter(super().read(partition.part)))
        left = partition.rows
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows
