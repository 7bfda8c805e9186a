"""The `.snapshot` files: producer state at an offset, so that opening a log need not read all of it."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ..protocol.checksum import crc32c
from .errors import CorruptSnapshotError

SNAPSHOT_SUFFIX = ".snapshot"
_VERSION = 1
_HEADER = struct.Struct(">hIi")
_CRC_END = 6
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class SnapshotEntry(NamedTuple):
    """One batch of a producer's window; -1 stands for what there is not.

    Kafka writes one entry a producer, with its newest batch, and so forgets after a restart that an earlier batch still
    in flight is in the log already. Here a producer has an entry for each batch it may send again, oldest first. Kafka
    keeps the last entry it reads for a producer id: for it such a file says what its own would say.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def snapshot_file_name(offset: int) -> str:
    """Name of the snapshot of everything below `offset`."""
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> int:
    """The offset in a snapshot's name."""
    return int(name.removesuffix(SNAPSHOT_SUFFIX))


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Layout: i16 version 1, u32 CRC-32C of byte 6 to the end, i32 count, then 46 bytes an entry, fields in order."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = b"".join((_COUNT.pack(len(packed)), *packed))
    return _HEADER.pack(_VERSION, crc32c(body), len(packed)) + body[_COUNT.size :]


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """The producers in a snapshot. Raises `CorruptSnapshotError` for a wrong version, CRC or length."""
    try:
        version, crc, count = _HEADER.unpack_from(data)
    except struct.error as error:
        raise CorruptSnapshotError(f"snapshot of {len(data)} bytes") from error
    if version != _VERSION:
        raise CorruptSnapshotError(f"snapshot version {version} is not known")
    if crc != crc32c(data[_CRC_END:]):
        raise CorruptSnapshotError("the CRC of the snapshot does not match")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"snapshot of {len(data)} bytes for {count} producers")
    return [SnapshotEntry._make(values) for values in _ENTRY.iter_unpack(data[_HEADER.size :])]
