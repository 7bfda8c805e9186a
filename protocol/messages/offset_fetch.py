"""OffsetFetch (key 9): read the offsets a consumer group has stored.

Versions 0-10, flexible from 6.
   0  read from ZooKeeper by old brokers
   1  read from the offsets topic
   2  null topics = all; top-level error code
   3  response adds throttle_time_ms
   4  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   5  leader epoch
   7  require_stable -> UNSTABLE_OFFSET_COMMIT while a transactional commit is pending (KIP-447)
   8  several groups in one request
   9  member id/epoch for KIP-848
  10  topic ids only
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int16, int32, int64, message, string, uuid, wire


@message
class OffsetFetchRequestTopic:
    name: str = wire(string, "0-7")
    partition_indexes: list[int] = wire([int32], "0-7")


@message
class OffsetFetchRequestTopics:
    name: str = wire(string, "8-9", ignorable=True)
    topic_id: UUID = wire(uuid, "10+", ignorable=True)
    partition_indexes: list[int] = wire([int32], "8+")


@message
class OffsetFetchRequestGroup:
    group_id: str = wire(string, "8+")
    member_id: str | None = wire(string, "9+", null="9+", default=None, ignorable=True)
    member_epoch: int = wire(int32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = wire([OffsetFetchRequestTopics], "8+", null="8+")


@message(versions="0-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = wire(string, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = wire([OffsetFetchRequestTopic], "0-7", null="2-7")
    groups: list[OffsetFetchRequestGroup] = wire([OffsetFetchRequestGroup], "8+")
    require_stable: bool = wire(boolean, "7+")


@message
class OffsetFetchResponsePartition:
    partition_index: int = wire(int32, "0-7")
    committed_offset: int = wire(int64, "0-7")
    committed_leader_epoch: int = wire(int32, "5-7", default=-1, ignorable=True)
    metadata: str | None = wire(string, "0-7", null="0-7")
    error_code: int = wire(int16, "0-7")


@message
class OffsetFetchResponseTopic:
    name: str = wire(string, "0-7")
    partitions: list[OffsetFetchResponsePartition] = wire([OffsetFetchResponsePartition], "0-7")


@message
class OffsetFetchResponsePartitions:
    partition_index: int = wire(int32, "8+")
    committed_offset: int = wire(int64, "8+")
    committed_leader_epoch: int = wire(int32, "8+", default=-1, ignorable=True)
    metadata: str | None = wire(string, "8+", null="8+")
    error_code: int = wire(int16, "8+")


@message
class OffsetFetchResponseTopics:
    name: str = wire(string, "8-9", ignorable=True)
    topic_id: UUID = wire(uuid, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = wire([OffsetFetchResponsePartitions], "8+")


@message
class OffsetFetchResponseGroup:
    group_id: str = wire(string, "8+")
    topics: list[OffsetFetchResponseTopics] = wire([OffsetFetchResponseTopics], "8+")
    error_code: int = wire(int16, "8+")


@message(versions="0-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = wire(int32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire([OffsetFetchResponseTopic], "0-7")
    error_code: int = wire(int16, "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire([OffsetFetchResponseGroup], "8+")
