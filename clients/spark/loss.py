"""What `failOnDataLoss` decides: records that a query was to read and that are gone end it, or are passed over aloud.

Records are lost when the log starts behind the offset that is due (retention, DeleteRecords), when it ends before it
(truncation), when a partition was deleted, and when its topic was deleted and created again. Offsets that compaction
left empty and those of transaction markers are no loss.
"""

from __future__ import annotations

from ...protocol.room_logger import room_logger

logger = room_logger("clients.spark")

SURELY_GONE_S = 3.0
"""So long a topic is looked for again that a broker says is not there: one that has just started knows none yet."""


class DataLossError(RuntimeError):
    """Records that were to be read are gone."""


def report_loss(what: str, *, fail: bool) -> None:
    """Raise DataLossError, or with `fail` false write a warning and let the query go on."""
    if fail:
        raise DataLossError(
            f"{what}. Some data may have been lost. Set option failOnDataLoss to false to go on without it."
        )
    logger.warning("%s; going on, since failOnDataLoss is false", what)
