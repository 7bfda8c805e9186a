"""AlterReplicaLogDirs (key 34): move replicas between the log directories of a broker.

Versions 0-2, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
"""

from __future__ import annotations

from ..schema import int16, int32, message, string, wire


@message
class AlterReplicaLogDirTopic:
    name: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class AlterReplicaLogDir:
    path: str = wire(string, "0+")
    topics: list[AlterReplicaLogDirTopic] = wire([AlterReplicaLogDirTopic], "0+")


@message(versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = wire([AlterReplicaLogDir], "0+")


@message
class AlterReplicaLogDirPartitionResult:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")


@message
class AlterReplicaLogDirTopicResult:
    topic_name: str = wire(string, "0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = wire([AlterReplicaLogDirPartitionResult], "0+")


@message(versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    results: list[AlterReplicaLogDirTopicResult] = wire([AlterReplicaLogDirTopicResult], "0+")
