"""OffsetDelete (key 47): forget stored offsets of a group.

Versions 0, never flexible.
"""

from __future__ import annotations

from ..schema import int16, int32, message, string, wire


@message
class OffsetDeleteRequestPartition:
    partition_index: int = wire(int32, "0+")


@message
class OffsetDeleteRequestTopic:
    name: str = wire(string, "0+")
    partitions: list[OffsetDeleteRequestPartition] = wire([OffsetDeleteRequestPartition], "0+")


@message(versions="0")
class OffsetDeleteRequest:
    group_id: str = wire(string, "0+")
    topics: list[OffsetDeleteRequestTopic] = wire([OffsetDeleteRequestTopic], "0+")


@message
class OffsetDeleteResponsePartition:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")


@message
class OffsetDeleteResponseTopic:
    name: str = wire(string, "0+")
    partitions: list[OffsetDeleteResponsePartition] = wire([OffsetDeleteResponsePartition], "0+")


@message(versions="0")
class OffsetDeleteResponse:
    error_code: int = wire(int16, "0+")
    throttle_time_ms: int = wire(int32, "0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = wire([OffsetDeleteResponseTopic], "0+")
