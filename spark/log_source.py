"""`format("barnabas-log")`: partition directories of Kafka or Barnabas as Spark data frames, without a broker."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from . import host
from .error_messages import without_traceback


class BarnabasLogSource(DataSource):
    """One row per record: Kafka's columns, and the position of the record."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        host.spare_next_task()

    @classmethod
    def name(cls) -> str:
        return "barnabas-log"

    @without_traceback
    def schema(self) -> StructType:
        from .log_reader import log_row

        return log_row(self.options)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        from .log_reader import BarnabasLogReader

        host.spare_next_task()
        return BarnabasLogReader(dict(self.options), schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .log_writer import BarnabasLogWriter

        return BarnabasLogWriter(dict(self.options), schema)
