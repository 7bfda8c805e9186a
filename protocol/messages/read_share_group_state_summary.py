"""ReadShareGroupStateSummary (key 87): read the offsets in the state of share-partitions (KIP-932), between brokers.

Versions 0-1, flexible from 0.
   1  number of records whose delivery is complete, for the lag of the group (KIP-1226)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, int64, message, string, uuid, wire


@message
class PartitionData:
    partition: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")


@message
class ReadStateSummaryData:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[PartitionData] = wire([PartitionData], "0+")


@message(versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: str = wire(string, "0+")
    topics: list[ReadStateSummaryData] = wire([ReadStateSummaryData], "0+")


@message
class PartitionResult:
    partition: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    state_epoch: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")
    start_offset: int = wire(int64, "0+")
    delivery_complete_count: int = wire(int32, "1+", default=-1, ignorable=True)


@message
class ReadStateSummaryResult:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[PartitionResult] = wire([PartitionResult], "0+")


@message(versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = wire([ReadStateSummaryResult], "0+")
