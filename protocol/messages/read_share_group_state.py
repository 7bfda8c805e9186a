"""ReadShareGroupState (key 84): read the state of share-partitions (KIP-932), between brokers.

Version 0, flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int8, int16, int32, int64, message, string, uuid, wire


@message
class PartitionData:
    partition: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")


@message
class ReadStateData:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[PartitionData] = wire([PartitionData], "0+")


@message(versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: str = wire(string, "0+")
    topics: list[ReadStateData] = wire([ReadStateData], "0+")


@message
class StateBatch:
    first_offset: int = wire(int64, "0+")
    last_offset: int = wire(int64, "0+")
    delivery_state: int = wire(int8, "0+")
    delivery_count: int = wire(int16, "0+")


@message
class PartitionResult:
    partition: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    state_epoch: int = wire(int32, "0+")
    start_offset: int = wire(int64, "0+")
    state_batches: list[StateBatch] = wire([StateBatch], "0+")


@message
class ReadStateResult:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[PartitionResult] = wire([PartitionResult], "0+")


@message(versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = wire([ReadStateResult], "0+")
