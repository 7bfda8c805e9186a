"""Jobs over topics and segment directories of any size: functions of a session and a data frame of records.

None of them collects records on the driver; docs/spark.md lists their shuffles.
"""

from .audit import audit
from .compact import compact, latest_per_key
from .export import export
from .iceberg import append_to_iceberg
from .records import log_records, topic_records
from .replay import replay
from .table import table

__all__ = [
    "append_to_iceberg",
    "audit",
    "compact",
    "export",
    "latest_per_key",
    "log_records",
    "replay",
    "table",
    "topic_records",
]
