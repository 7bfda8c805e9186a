"""OffsetCommit (key 8): store the offsets a consumer group has consumed.

Versions 0-10, flexible from 8.
   0  stored in ZooKeeper by old brokers, no group fencing
   1  group fencing fields + per-partition commit timestamp (-1 = now)
   2  per-request retention replaces timestamps
   3  response adds throttle_time_ms
   4  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   5  retention dropped: broker offsets.retention.minutes rules
   6  leader epoch
   7  static membership
   9  usable with KIP-848 groups; may return GROUP_ID_NOT_FOUND / STALE_MEMBER_EPOCH
  10  topic ids only
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, int64, message, string, uuid, wire


@message
class OffsetCommitRequestPartition:
    partition_index: int = wire(int32, "0+")
    committed_offset: int = wire(int64, "0+")
    committed_leader_epoch: int = wire(int32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = wire(int64, "1", default=-1)
    committed_metadata: str | None = wire(string, "0+", null="0+")


@message
class OffsetCommitRequestTopic:
    name: str = wire(string, "0-9", ignorable=True)
    topic_id: UUID = wire(uuid, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = wire([OffsetCommitRequestPartition], "0+")


@message(versions="0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = wire(string, "0+")
    generation_id_or_member_epoch: int = wire(int32, "1+", default=-1, ignorable=True)
    member_id: str = wire(string, "1+", ignorable=True)
    group_instance_id: str | None = wire(string, "7+", null="7+", default=None)
    retention_time_ms: int = wire(int64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = wire([OffsetCommitRequestTopic], "0+")


@message
class OffsetCommitResponsePartition:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")


@message
class OffsetCommitResponseTopic:
    name: str = wire(string, "0-9", ignorable=True)
    topic_id: UUID = wire(uuid, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = wire([OffsetCommitResponsePartition], "0+")


@message(versions="0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = wire(int32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = wire([OffsetCommitResponseTopic], "0+")
