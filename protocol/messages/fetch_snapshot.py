"""FetchSnapshot (key 59): read a snapshot of `__cluster_metadata` by byte position (KIP-630).

Versions 0-1, flexible from 0.
   1  directory id of the replica, endpoint of the leader (KIP-853)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import Buffer, int16, int32, int64, message, record_bytes, string, uint16, uuid, wire


@message
class SnapshotId:
    end_offset: int = wire(int64, "0+")
    epoch: int = wire(int32, "0+")


@message
class PartitionSnapshot:
    partition: int = wire(int32, "0+")
    current_leader_epoch: int = wire(int32, "0+")
    snapshot_id: SnapshotId = wire(SnapshotId, "0+")
    position: int = wire(int64, "0+")
    replica_directory_id: UUID = wire(uuid, "1+", tag=0, ignorable=True)


@message
class TopicSnapshot:
    name: str = wire(string, "0+")
    partitions: list[PartitionSnapshot] = wire([PartitionSnapshot], "0+")


@message(versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    cluster_id: str | None = wire(string, "0+", null="0+", default=None, tag=0)
    replica_id: int = wire(int32, "0+", default=-1)
    max_bytes: int = wire(int32, "0+", default=2_147_483_647)
    topics: list[TopicSnapshot] = wire([TopicSnapshot], "0+")


@message
class LeaderIdAndEpoch:
    leader_id: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")


@message
class ResponsePartitionSnapshot:
    index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    snapshot_id: SnapshotId = wire(SnapshotId, "0+")
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "0+", tag=0)
    size: int = wire(int64, "0+")
    position: int = wire(int64, "0+")
    unaligned_records: Buffer = wire(record_bytes, "0+", default=b"")


@message
class ResponseTopicSnapshot:
    name: str = wire(string, "0+")
    partitions: list[ResponsePartitionSnapshot] = wire([ResponsePartitionSnapshot], "0+")


@message
class NodeEndpoint:
    node_id: int = wire(int32, "1+")
    host: str = wire(string, "1+")
    port: int = wire(uint16, "1+")


@message(versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    throttle_time_ms: int = wire(int32, "0+", ignorable=True)
    error_code: int = wire(int16, "0+")
    topics: list[ResponseTopicSnapshot] = wire([ResponseTopicSnapshot], "0+")
    node_endpoints: list[NodeEndpoint] = wire([NodeEndpoint], "1+", tag=0)
