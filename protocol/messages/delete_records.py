"""DeleteRecords (key 21): raise the log start offset of partitions.

Versions 0-2, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
"""

from __future__ import annotations

from ..schema import int16, int32, int64, message, string, wire


@message
class DeleteRecordsPartition:
    partition_index: int = wire(int32, "0+")
    offset: int = wire(int64, "0+")


@message
class DeleteRecordsTopic:
    name: str = wire(string, "0+")
    partitions: list[DeleteRecordsPartition] = wire([DeleteRecordsPartition], "0+")


@message(versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = wire([DeleteRecordsTopic], "0+")
    timeout_ms: int = wire(int32, "0+")


@message
class DeleteRecordsPartitionResult:
    partition_index: int = wire(int32, "0+")
    low_watermark: int = wire(int64, "0+")
    error_code: int = wire(int16, "0+")


@message
class DeleteRecordsTopicResult:
    name: str = wire(string, "0+")
    partitions: list[DeleteRecordsPartitionResult] = wire([DeleteRecordsPartitionResult], "0+")


@message(versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    topics: list[DeleteRecordsTopicResult] = wire([DeleteRecordsTopicResult], "0+")
