"""The binary files beside a segment: entries of a fixed size, one behind the other, and nothing else but what is said.

An index file may end in zeros where its broker preallocated it and did not close it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .checksum import crc32c
from .errors import ProtocolError
from .layouts import Int16, Int32, Int64, Layout, Uint32


class OffsetIndexEntry(NamedTuple):
    """`.index`: the last offset of the batch that begins at a position of the `.log` file. Both rise."""

    relative_offset: Int32
    """From the segment's base offset."""
    position: Int32


class TimeIndexEntry(NamedTuple):
    """`.timeindex`: no record up to this offset is younger than this timestamp, in ms."""

    timestamp: Int64
    relative_offset: Int32


class TransactionIndexEntry(NamedTuple):
    """`.txnindex`: a transaction that was aborted, up to its marker, in the order of the markers."""

    version: Int16
    producer_id: Int64
    first_offset: Int64
    last_offset: Int64
    last_stable_offset: Int64


class SnapshotHeader(NamedTuple):
    """What a `.snapshot` begins with; then so many `SnapshotEntry`."""

    version: Int16
    crc: Uint32
    """CRC-32C of all that follows it."""
    entry_count: Int32


class SnapshotEntry(NamedTuple):
    """`.snapshot`: one batch of a producer's window; -1 stands for what there is not.

    Kafka writes one entry a producer, with its newest batch, and so forgets after a restart that an earlier batch still
    in flight is in the log already. Here a producer has an entry for each batch it may send again, oldest first. Kafka
    keeps the last entry it reads for a producer id: for it such a file says what its own would say.
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
_SNAPSHOT_CRC_END = SNAPSHOT_HEADER.at("entry_count")


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """A `.snapshot` file: the header, then the entries."""
    packed = [SNAPSHOT_ENTRY.struct.pack(*entry) for entry in entries]
    data = bytearray(b"".join((SNAPSHOT_HEADER.struct.pack(SNAPSHOT_VERSION, 0, len(packed)), *packed)))
    SNAPSHOT_HEADER.patch(data, crc=crc32c(data[_SNAPSHOT_CRC_END:]))
    return bytes(data)


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """The entries of a `.snapshot` file. Raises ProtocolError for a wrong version, CRC or length."""
    if len(data) < SNAPSHOT_HEADER.size:
        raise ProtocolError(f"snapshot of {len(data)} bytes")
    version, crc, count = SNAPSHOT_HEADER.read(data)
    if version != SNAPSHOT_VERSION:
        raise ProtocolError(f"snapshot version {version} is not known")
    if crc != crc32c(data[_SNAPSHOT_CRC_END:]):
        raise ProtocolError("the CRC of the snapshot does not match")
    if len(data) != SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY.size:
        raise ProtocolError(f"snapshot of {len(data)} bytes for {count} entries")
    return list(SNAPSHOT_ENTRY.read_all(data[SNAPSHOT_HEADER.size :]))


def decode_transaction_index(data: bytes) -> list[TransactionIndexEntry]:
    """The entries of a `.txnindex` file, without one that is cut off. Raises ProtocolError for an unknown version."""
    entries = list(TRANSACTION_INDEX_ENTRY.read_all(data))
    for entry in entries:
        if entry.version != TRANSACTION_INDEX_VERSION:
            raise ProtocolError(f"transaction index version {entry.version} is not known")
    return entries
