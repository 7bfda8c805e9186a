"""The records of the share coordinator in `__share_group_state` (KIP-932).

Keys and values each start with a version (`codec.encode_versioned`). The version of a key is also the type of the
record: 0 is a snapshot of a share-partition, 1 is an update of the last snapshot. A share-partition is a partition of a
topic in one share group. Both types have a key with the same fields.
"""

from __future__ import annotations

from uuid import UUID

from .schema import int8, int16, int32, int64, message, string, uuid, wire


@message
class StateBatch:
    """The state of consecutive offsets.

    `delivery_state` is 0 (available), 2 (acknowledged), 3 (archiving, KIP-1191) or 4 (archived).
    """

    first_offset: int = wire(int64, "0+")
    last_offset: int = wire(int64, "0+")
    delivery_state: int = wire(int8, "0+")
    delivery_count: int = wire(int16, "0+")


@message(versions="0")
class ShareSnapshotKey:
    """Key of a snapshot."""

    group_id: str = wire(string, "0+")
    topic_id: UUID = wire(uuid, "0+")
    partition: int = wire(int32, "0+")


@message(versions="0", flexible="0+")
class ShareSnapshotValue:
    """The complete state of a share-partition.

    `delivery_complete_count` is the number of offsets from the start offset on whose delivery is complete (KIP-1226),
    -1 in records of Kafka 4.1.
    """

    snapshot_epoch: int = wire(int32, "0+")
    state_epoch: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")
    start_offset: int = wire(int64, "0+")
    delivery_complete_count: int = wire(int32, "0+", default=-1, tag=0)
    create_timestamp: int = wire(int64, "0+")
    write_timestamp: int = wire(int64, "0+")
    state_batches: list[StateBatch] = wire([StateBatch], "0+")


@message(versions="1")
class ShareUpdateKey:
    """Key of an update."""

    group_id: str = wire(string, "1+")
    topic_id: UUID = wire(uuid, "1+")
    partition: int = wire(int32, "1+")


@message(versions="0", flexible="0+")
class ShareUpdateValue:
    """A change of the state since the snapshot of the same epoch. A start offset of -1 does not change the offset."""

    snapshot_epoch: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")
    start_offset: int = wire(int64, "0+")
    delivery_complete_count: int = wire(int32, "0+", default=-1, tag=0)
    state_batches: list[StateBatch] = wire([StateBatch], "0+")
