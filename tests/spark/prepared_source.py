"""`format("prepared")`: one Arrow batch over and over, which is as fast as any Python data source can be.

Takes the options of `barnabas-log`, and `rows`. Each task decodes the first batch of its part once; all that is left to
do then is what Spark does: bring Arrow batches from Python to the JVM, and turn them into rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.clients.spark.log_reader import BarnabasLogReader
from barnabas.clients.spark.log_source import BarnabasLogSource


class PreparedSource(BarnabasLogSource):
    @classmethod
    def name(cls) -> str:
        return "prepared"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PreparedReader(dict(self.options), schema)


class PreparedReader(BarnabasLogReader):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._rows_a_task = int(options["rows"])

    def partitions(self) -> list[InputPartition]:
        parts = super().partitions()
        self._rows_a_task //= len(parts)
        return parts

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = next(iter(super().read(partition)))
        left = self._rows_a_task
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows
