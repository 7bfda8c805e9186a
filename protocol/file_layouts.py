"""The binary files next to a segment: consecutive entries of a fixed size, without further bytes unless noted.

An index file may end in zeros if its broker preallocated it and did not close it.
"""

from __future__ import annotations

from typing import NamedTuple

from .checksum import crc32c
from .errors import ProtocolError
from .layouts import Int16, Int32, Int64, Layout, Uint32


class OffsetIndexEntry(NamedTuple):
    """`.index`: the last offset of the batch at a position of the `.log` file. Both increase."""

    relative_offset: Int32
    """Relative to the segment's base offset."""
    position: Int32


class TimeIndexEntry(NamedTuple):
    """`.timeindex`: no record up to this offset has a later timestamp, in ms."""

    timestamp: Int64
    relative_offset: Int32


class TransactionIndexEntry(NamedTuple):
    """`.txnindex`: an aborted transaction, up to its marker, in the order of the markers."""

    version: Int16
    producer_id: Int64
    first_offset: Int64
    last_offset: Int64
    last_stable_offset: Int64


class SnapshotHeader(NamedTuple):
    """Header of a `.snapshot`, followed by `SnapshotEntry` items."""

    version: Int16
    crc: Uint32
    """CRC-32C of all bytes after it."""
    entry_count: Int32


class SnapshotEntry(NamedTuple):
    """`.snapshot`: one batch of a producer's window; -1 for missing values.

    Kafka writes one entry per producer, with its newest batch, and so forgets after a restart that an earlier batch
    still in flight is in the log already. Barnabas writes an entry for each batch that the producer may send again,
    oldest first. Kafka keeps the last entry that it reads for a producer id, so it loads the same state as from its own
    file.
    """

    producer_id: Int64
    producer_epoch: Int16
    last_sequence: Int32
    last_offset: Int64
    offset_delta: Int32
    timestamp: Int64
    coordinator_epoch: Int32
    current_txn_first_offset: Int64


OFFSET_INDEX_ENTRY = Layout(OffsetIndexEntry)
TIME_INDEX_ENTRY = Layout(TimeIndexEntry)
TRANSACTION_INDEX_ENTRY = Layout(TransactionIndexEntry)
TRANSACTION_INDEX_VERSION = 0
SNAPSHOT_HEADER = Layout(SnapshotHeader)
SNAPSHOT_ENTRY = Layout(SnapshotEntry)
SNAPSHOT_VERSION = 1
pack_snapshot_entry = SNAPSHOT_ENTRY.struct.pack
"""Encode an entry from its fields: a snapshot may have a million, for which no `SnapshotEntry` is created."""
_SNAPSHOT_CRC_END = SNAPSHOT_HEADER.at("entry_count")


def begin_snapshot_crc(entry_count: int) -> int:
    """Return the CRC of a snapshot of `entry_count` entries before its first one; `crc32c` continues it."""
    return crc32c(SNAPSHOT_HEADER.struct.pack(SNAPSHOT_VERSION, 0, entry_count)[_SNAPSHOT_CRC_END:])


def encode_snapshot_header(crc: int, entry_count: int) -> bytes:
    """Return the header of a snapshot, whose `crc` covers the count and all entries."""
    return SNAPSHOT_HEADER.struct.pack(SNAPSHOT_VERSION, crc, entry_count)


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """Decode the entries of a `.snapshot` file. Raises ProtocolError for a wrong version, CRC or length."""
    if len(data) < SNAPSHOT_HEADER.size:
        raise ProtocolError(f"snapshot of {len(data)} bytes")
    version, crc, count = SNAPSHOT_HEADER.read(data)
    if version != SNAPSHOT_VERSION:
        raise ProtocolError(f"unknown snapshot version {version}")
    if crc != crc32c(data[_SNAPSHOT_CRC_END:]):
        raise ProtocolError("the CRC of the snapshot does not match")
    if len(data) != SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY.size:
        raise ProtocolError(f"snapshot of {len(data)} bytes for {count} entries")
    return list(SNAPSHOT_ENTRY.read_all(data[SNAPSHOT_HEADER.size :]))


def decode_transaction_index(data: bytes) -> list[TransactionIndexEntry]:
    """Decode the entries of a `.txnindex` file, except a truncated one. Raises ProtocolError for an unknown version."""
    entries = list(TRANSACTION_INDEX_ENTRY.read_all(data))
    for entry in entries:
        if entry.version != TRANSACTION_INDEX_VERSION:
            raise ProtocolError(f"unknown transaction index version {entry.version}")
    return entries
