"""AlterPartitionReassignments (key 45): start or cancel moving replicas between brokers.

Versions 0-1, flexible from 0.
   1  allow replication factor change flag (KIP-860)
"""

from __future__ import annotations

from ..schema import boolean, int16, int32, message, string, wire


@message
class ReassignablePartition:
    partition_index: int = wire(int32, "0+")
    replicas: list[int] | None = wire([int32], "0+", null="0+", default=None)


@message
class ReassignableTopic:
    name: str = wire(string, "0+")
    partitions: list[ReassignablePartition] = wire([ReassignablePartition], "0+")


@message(versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = wire(int32, "0+", default=60000)
    allow_replication_factor_change: bool = wire(boolean, "1+", default=True)
    topics: list[ReassignableTopic] = wire([ReassignableTopic], "0+")


@message
class ReassignablePartitionResponse:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")


@message
class ReassignableTopicResponse:
    name: str = wire(string, "0+")
    partitions: list[ReassignablePartitionResponse] = wire([ReassignablePartitionResponse], "0+")


@message(versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    allow_replication_factor_change: bool = wire(boolean, "1+", default=True, ignorable=True)
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    responses: list[ReassignableTopicResponse] = wire([ReassignableTopicResponse], "0+")
