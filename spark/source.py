"""`format("barnabas")`: topics of any Kafka cluster as Spark data frames.

Spark imports this module whenever it looks for any source, and an error in it hides all others; so its parts are
imported when they are needed.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from . import host
from .error_messages import without_traceback


class BarnabasSource(DataSource):
    """Columns and options of Spark's own Kafka connector, for reading and writing."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        host.spare_next_task()

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    @without_traceback
    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka connector."""
        from .options import OptionReader
        from .rows import default_row
        from .value_formats import formats_of

        headers = OptionReader(self.options).flag("includeHeaders", default=False)
        return default_row(formats_of(self.options), headers=headers)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        from .options import OptionReader

        host.spare_next_task()
        if OptionReader(self.options).flag("pushdown", default=False):
            from .pushdown import NarrowingBatchReader

            return NarrowingBatchReader(dict(self.options), schema)
        from .batch_reader import BarnabasBatchReader

        return BarnabasBatchReader(dict(self.options), schema)

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        from .stream_reader import new_stream_reader

        return new_stream_reader(dict(self.options), schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Append rows independently of `overwrite`, because a topic is a log."""
        from .sink import BarnabasWriter

        return BarnabasWriter(dict(self.options), schema)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802  # Spark's name
        from .sink import BarnabasStreamWriter

        return BarnabasStreamWriter(dict(self.options), schema)
