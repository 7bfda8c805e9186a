"""Missing records: they are an error, or are skipped with a warning.

Records are lost when the log start offset is above the next offset (retention, DeleteRecords), when the log end offset
is below it (truncation), when a partition was deleted, and when its topic was deleted and created again. Offsets that
compaction left empty, and offsets of transaction markers, are not lost records.
"""

from __future__ import annotations

from ..common.room_logger import room_logger

logger = room_logger("arrow")

SURELY_GONE_S = 3.0
"""Seconds for which a missing topic is looked up again: a broker that has just started has no topics yet."""


class DataLossError(RuntimeError):
    """Records of the read are missing."""


def report_loss(what: str, *, fail: bool, option: str) -> None:
    """Raise DataLossError, or with `fail` false log a warning and continue. `option` is the caller's name of `fail`."""
    if fail:
        raise DataLossError(
            f"{what}. Some data may have been lost. Set option {option} to false to continue without it."
        )
    logger.warning("%s; continuing, since %s is false", what, option)
