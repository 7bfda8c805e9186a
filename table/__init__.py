"""Tables that follow topics: each record once, in Iceberg, Delta, Parquet or DuckDB, without Spark or a JVM.

    from barnabas.table import FollowSettings, TableFollower, open_table

    with open_table("iceberg:///var/lake#db.orders") as sink:
        settings = FollowSettings("localhost:9092", ["orders"])
        TableFollower(sink, settings, is_stopping=lambda: False).run(once=True)

The command is `barnabas table follow`.
"""

from .follower import FollowSettings, TableFollower
from .location import open_table
from .offsets import TableOffsets
from .sink import TableConflictError

__all__ = ["FollowSettings", "TableConflictError", "TableFollower", "TableOffsets", "open_table"]
