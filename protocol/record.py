"""One record in the view of a reader, in any format, and the common parts of all formats."""

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
    """The common start of every entry of a log or of a records field, in all formats."""

    offset: Int64
    """The offset of the first record in v2, of the last record in v0 and v1."""
    length: Int32
    """Bytes after this field."""
    crc_or_epoch: Int32
    magic: Int8


ENTRY_FRONT = Layout(EntryFront)
MIN_ENTRY_HEADER_SIZE = ENTRY_FRONT.size
MAGIC_POSITION = ENTRY_FRONT.at("magic")
LOG_OVERHEAD = ENTRY_FRONT.at("crc_or_epoch")
"""Bytes of an entry that its length does not include."""
LEAST_SIZES = (26, 34, 61)
"""Minimum bytes of an entry of format v0, v1 and v2."""

_length_and_magic = ENTRY_FRONT.reader("length", "magic")

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08

MAX_EXPANSION = 24
"""Maximum expansion of a large compressed batch."""
_SMALL_MAX = 64 * 1024 * 1024


def max_plain_size(packed_size: int) -> int:
    """Return the default maximum of the decompressed size of a compressed batch of this size.

    Never less than a broker accepts (`AppendRequest.max_decompressed_size`), for any `max.message.bytes`.
    """
    return max(_SMALL_MAX, MAX_EXPANSION * packed_size)


Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class TimestampType(IntEnum):
    """Source of the timestamps of a batch; v0 messages have none."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def entry_size(buffer: bytes | bytearray | memoryview, position: int) -> int:
    """Return the size of the entry at `position`, which may be incomplete: all iterations over entries use it.

    Raises ProtocolError for an invalid length or magic, struct.error if there are fewer than 17 bytes.
    """
    length, magic = _length_and_magic(buffer, position)
    size = length + LOG_OVERHEAD
    if not 0 <= magic < len(LEAST_SIZES) or size < LEAST_SIZES[magic]:
        raise ProtocolError(f"invalid entry of length {length} and magic {magic} (at {position})")
    return size


class Record(NamedTuple):
    """One record of a log. `timestamp` is milliseconds since 1970, -1 for none (format v0)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
