"""CreatePartitions (key 37): give topics more partitions.

Versions 0-3, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  may return THROTTLING_QUOTA_EXCEEDED
"""

from __future__ import annotations

from ..schema import boolean, int16, int32, message, string, wire


@message
class CreatePartitionsAssignment:
    broker_ids: list[int] = wire([int32], "0+")


@message
class CreatePartitionsTopic:
    name: str = wire(string, "0+")
    count: int = wire(int32, "0+")
    assignments: list[CreatePartitionsAssignment] | None = wire([CreatePartitionsAssignment], "0+", null="0+")


@message(versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = wire([CreatePartitionsTopic], "0+")
    timeout_ms: int = wire(int32, "0+")
    validate_only: bool = wire(boolean, "0+")


@message
class CreatePartitionsTopicResult:
    name: str = wire(string, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)


@message(versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    results: list[CreatePartitionsTopicResult] = wire([CreatePartitionsTopicResult], "0+")
