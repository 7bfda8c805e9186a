"""`format("barnabas-log")`: partition folders of Kafka or Barnabas as Spark data frames, without a broker."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from . import host
from .mistakes import plainly


class BarnabasLogSource(DataSource):
    """One row a record: Kafka's row, and where the record stands."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        host.spare_next_task()

    @classmethod
    def name(cls) -> str:
        return "barnabas-log"

    @plainly
    def schema(self) -> StructType:
        from .log_reader import log_row

        return log_row(self.options)

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from .log_reader import BarnabasLogReader

        host.spare_next_task()
        return BarnabasLogReader(dict(self.options), schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .log_writer import BarnabasLogWriter

        return BarnabasLogWriter(dict(self.options), schema)
