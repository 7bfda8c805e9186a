"""InitializeShareGroupState (key 83): create the state of share-partitions (KIP-932), between brokers.

Version 0, flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, int64, message, string, uuid, wire


@message
class PartitionData:
    partition: int = wire(int32, "0+")
    state_epoch: int = wire(int32, "0+")
    start_offset: int = wire(int64, "0+")


@message
class InitializeStateData:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[PartitionData] = wire([PartitionData], "0+")


@message(versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: str = wire(string, "0+")
    topics: list[InitializeStateData] = wire([InitializeStateData], "0+")


@message
class PartitionResult:
    partition: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)


@message
class InitializeStateResult:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[PartitionResult] = wire([PartitionResult], "0+")


@message(versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = wire([InitializeStateResult], "0+")
