"""ElectLeaders (key 43): elect the preferred, or any living, leader of partitions.

Versions 0-2, flexible from 2.
   1  unclean election type + top-level error
"""

from __future__ import annotations

from ..schema import int8, int16, int32, message, string, wire


@message
class TopicPartitions:
    topic: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message(versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = wire(int8, "1+")
    topic_partitions: list[TopicPartitions] | None = wire([TopicPartitions], "0+", null="0+")
    timeout_ms: int = wire(int32, "0+", default=60000)


@message
class PartitionResult:
    partition_id: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")


@message
class ReplicaElectionResult:
    topic: str = wire(string, "0+")
    partition_result: list[PartitionResult] = wire([PartitionResult], "0+")


@message(versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "1+")
    replica_election_results: list[ReplicaElectionResult] = wire([ReplicaElectionResult], "0+")
