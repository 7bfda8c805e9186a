"""AssignReplicasToDirs (key 73): a broker reports the log directories of its replicas to the controller (KIP-858).

Version 0, flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, int64, message, uuid, wire


@message
class PartitionData:
    partition_index: int = wire(int32, "0+")


@message
class TopicData:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[PartitionData] = wire([PartitionData], "0+")


@message
class DirectoryData:
    id: UUID = wire(uuid, "0+")
    topics: list[TopicData] = wire([TopicData], "0+")


@message(versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    broker_id: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "0+", default=-1)
    directories: list[DirectoryData] = wire([DirectoryData], "0+")


@message
class ResponsePartitionData:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")


@message
class ResponseTopicData:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[ResponsePartitionData] = wire([ResponsePartitionData], "0+")


@message
class ResponseDirectoryData:
    id: UUID = wire(uuid, "0+")
    topics: list[ResponseTopicData] = wire([ResponseTopicData], "0+")


@message(versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    directories: list[ResponseDirectoryData] = wire([ResponseDirectoryData], "0+")
