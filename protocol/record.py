"""One record as a reader sees it, whatever format its bytes have, and what all formats share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

# Every entry of a log or of a records field begins with i64 offset, i32 size of what follows the size.
SIZE_POSITION = 8
LOG_OVERHEAD = 12
MAGIC_POSITION = 16
MIN_ENTRY_HEADER_SIZE = 17

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08

# The largest plain size that a compressed batch may have when nobody says otherwise.
DEFAULT_MAX_DECOMPRESSED_SIZE = 64 * 1024 * 1024

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class TimestampType(IntEnum):
    """Who set the timestamps of a batch; v0 messages have none."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """One key and value in the log. `timestamp` is milliseconds since 1970, -1 for none (format v0)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
