"""One record as a reader sees it, whatever format its bytes have, and what all formats share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from .errors import ProtocolError
from .layouts import Int8, Int32, Int64, Layout

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1


class EntryFront(NamedTuple):
    """How every entry of a log or of a records field begins, whatever its format."""

    offset: Int64
    """Of the first record in v2, of the last one in v0 and v1."""
    length: Int32
    """Bytes behind this field."""
    crc_or_epoch: Int32
    magic: Int8


ENTRY_FRONT = Layout(EntryFront)
MIN_ENTRY_HEADER_SIZE = ENTRY_FRONT.size
MAGIC_POSITION = ENTRY_FRONT.at("magic")
LOG_OVERHEAD = ENTRY_FRONT.at("crc_or_epoch")
"""Bytes of an entry that its length leaves out."""
LEAST_SIZES = (26, 34, 61)
"""Bytes of the smallest entry of format v0, v1 and v2."""

_length_and_magic = ENTRY_FRONT.reader("length", "magic")

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08

MAX_EXPANSION = 24
"""How many times its size a compressed batch may expand to, if it is a large one."""
_SMALL_MAX = 64 * 1024 * 1024


def max_plain_size(packed_size: int) -> int:
    """The largest plain size that a compressed batch of this size may have when nobody says otherwise.

    Never less than what a broker takes (`AppendRequest.max_decompressed_size`), whatever its `max.message.bytes`.
    """
    return max(_SMALL_MAX, MAX_EXPANSION * packed_size)


Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class TimestampType(IntEnum):
    """Who set the timestamps of a batch; v0 messages have none."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def entry_size(buffer: bytes | bytearray | memoryview, position: int) -> int:
    """Bytes of the entry that begins at `position`, however much of it is there: what every walk over entries hops by.

    Raises ProtocolError for a length or a magic that no entry has, struct.error if there are fewer than 17 bytes.
    """
    length, magic = _length_and_magic(buffer, position)
    size = length + LOG_OVERHEAD
    if not 0 <= magic < len(LEAST_SIZES) or size < LEAST_SIZES[magic]:
        raise ProtocolError(f"no entry has length {length} and magic {magic} (at {position})")
    return size


class Record(NamedTuple):
    """One key and value in the log. `timestamp` is milliseconds since 1970, -1 for none (format v0)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
