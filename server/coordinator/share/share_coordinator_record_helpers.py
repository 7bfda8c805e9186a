"""The records of `__share_group_state`, with the same bytes as Kafka's (Kafka: ShareCoordinatorRecordHelpers).

A snapshot has the whole state of a share-partition, an update has the change of one write. A snapshot without a value
is a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ....protocol.codec import decode_versioned, peek_version
from ....protocol.compiled_support import uvarint
from ....protocol.errors import ProtocolError
from ....protocol.share_coordinator_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from ..coordinator_log import CoordinatorRecord
from .persister_state_batch_combiner import PersisterStateBatch, normalize
from .share_group_offset import UNINITIALIZED_DELIVERY_COMPLETE_COUNT, UNINITIALIZED_EPOCH, ShareGroupOffset
from .share_partition_key import SharePartitionKey

# Fixed layouts, which are faster than the schemas: each acknowledgement of a share consumer waits for an update record.
# tests/server/coordinator/share/test_records.py compares them with the schemas.
_key_front = Struct(">hh").pack  # type and length of the group id
_key_back = Struct(">i").pack  # partition
_snapshot_front = Struct(">hiiiqqq").pack  # version, three epochs, start offset, two timestamps
_update_front = Struct(">hiiq").pack  # version, two epochs, start offset
_batch = Struct(">qqbhB").pack  # two offsets, state, count, no tagged field
_count_tag = Struct(">BBBi")
"""One tagged field: tag 0 of four bytes, the delivery complete count."""
STATE_BATCH_BYTES = 20
RECORD_OVERHEAD_BYTES = 200
"""An upper bound of the size of a record without its group id and state batches, including the header of a batch."""
UTF8_BYTES = 4
"""Maximum bytes of a character in UTF-8."""
VERSION = 0


class CoordinatorRecordType(IntEnum):
    """The first field of a key (Kafka: CoordinatorRecordType)."""

    SHARE_SNAPSHOT = 0
    SHARE_UPDATE = 1


class ShareStateRecord(NamedTuple):
    """A record with its decoded content; `offset` is None in a tombstone."""

    type: CoordinatorRecordType
    key: SharePartitionKey
    offset: ShareGroupOffset | None

    @property
    def size_limit(self) -> int:
        """An upper bound of the size of the encoded record in bytes."""
        return record_bytes(self.key, 0 if self.offset is None else len(self.offset.state_batches))

    def encode(self) -> CoordinatorRecord:
        """Return key and value as bytes."""
        key = _encode_key(self.type, self.key)
        if self.offset is None:
            return key, None
        if self.type is CoordinatorRecordType.SHARE_SNAPSHOT:
            return key, _encode_snapshot(self.offset)
        return key, _encode_update(self.offset)


def record_bytes(key: SharePartitionKey, batch_count: int) -> int:
    """Return an upper bound of the size in bytes of a record with this number of state batches."""
    return RECORD_OVERHEAD_BYTES + UTF8_BYTES * len(key.group_id) + STATE_BATCH_BYTES * batch_count


def new_share_snapshot_record(key: SharePartitionKey, offset: ShareGroupOffset) -> ShareStateRecord:
    """Return the record with the whole state of a share-partition."""
    return ShareStateRecord(CoordinatorRecordType.SHARE_SNAPSHOT, key, offset)


def new_share_update_record(key: SharePartitionKey, offset: ShareGroupOffset) -> ShareStateRecord:
    """Return the record with a change; state epoch and timestamps are not part of it."""
    return ShareStateRecord(CoordinatorRecordType.SHARE_UPDATE, key, offset)


def new_share_state_tombstone_record(key: SharePartitionKey) -> ShareStateRecord:
    """Return the record that deletes a share-partition."""
    return ShareStateRecord(CoordinatorRecordType.SHARE_SNAPSHOT, key, None)


def read_record(key: bytes, value: bytes | None) -> ShareStateRecord | None:
    """Decode a record; return None for record types of later versions. Raises ProtocolError."""
    kind = peek_version(key)
    if kind == CoordinatorRecordType.SHARE_SNAPSHOT:
        snapshot_key = decode_versioned(ShareSnapshotKey, key)
        subject = SharePartitionKey(snapshot_key.group_id, snapshot_key.topic_id, snapshot_key.partition)
        return ShareStateRecord(
            CoordinatorRecordType.SHARE_SNAPSHOT, subject, None if value is None else _read_snapshot(value)
        )
    if kind == CoordinatorRecordType.SHARE_UPDATE:
        if value is None:
            raise ProtocolError("an update of a share-partition has no value")
        update_key = decode_versioned(ShareUpdateKey, key)
        subject = SharePartitionKey(update_key.group_id, update_key.topic_id, update_key.partition)
        return ShareStateRecord(CoordinatorRecordType.SHARE_UPDATE, subject, _read_update(value))
    return None


def _encode_key(kind: CoordinatorRecordType, key: SharePartitionKey) -> bytes:
    group_id = key.group_id.encode()
    return _key_front(kind, len(group_id)) + group_id + key.topic_id.bytes + _key_back(key.partition)


def _encode_snapshot(offset: ShareGroupOffset) -> bytes:
    front = _snapshot_front(
        VERSION,
        offset.snapshot_epoch,
        offset.state_epoch,
        offset.leader_epoch,
        offset.start_offset,
        offset.create_timestamp,
        offset.write_timestamp,
    )
    return front + _encode_batches(offset.state_batches) + _encode_count(offset.delivery_complete_count)


def _encode_update(offset: ShareGroupOffset) -> bytes:
    front = _update_front(VERSION, offset.snapshot_epoch, offset.leader_epoch, offset.start_offset)
    return front + _encode_batches(offset.state_batches) + _encode_count(offset.delivery_complete_count)


def _encode_batches(batches: Sequence[PersisterStateBatch]) -> bytes:
    return uvarint(len(batches) + 1) + b"".join([_batch(*batch, 0) for batch in batches])


def _encode_count(count: int) -> bytes:
    return b"\x00" if count == UNINITIALIZED_DELIVERY_COMPLETE_COUNT else _count_tag.pack(1, 0, 4, count)


def _read_snapshot(value: bytes) -> ShareGroupOffset:
    read = decode_versioned(ShareSnapshotValue, value)
    return ShareGroupOffset(
        read.snapshot_epoch,
        read.state_epoch,
        read.leader_epoch,
        read.start_offset,
        read.delivery_complete_count,
        _read_batches(read.state_batches),
        read.create_timestamp,
        read.write_timestamp,
    )


def _read_update(value: bytes) -> ShareGroupOffset:
    read = decode_versioned(ShareUpdateValue, value)
    return ShareGroupOffset(
        read.snapshot_epoch,
        UNINITIALIZED_EPOCH,
        read.leader_epoch,
        read.start_offset,
        read.delivery_complete_count,
        _read_batches(read.state_batches),
    )


def _read_batches(batches: Sequence[StateBatch]) -> list[PersisterStateBatch]:
    """Return the batches of a record in order; Kafka does not sort the batches of a single write."""
    return normalize(
        PersisterStateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in batches
        if one.first_offset <= one.last_offset
    )
