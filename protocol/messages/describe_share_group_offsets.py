"""DescribeShareGroupOffsets (key 90): the start offsets of share groups (KIP-932).

Versions 0-1, flexible from 0.
   1  lag (KIP-1226)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, int64, message, string, uuid, wire


@message
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = wire(string, "0+")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = wire(
        [DescribeShareGroupOffsetsRequestTopic], "0+", null="0+"
    )


@message(versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = wire([DescribeShareGroupOffsetsRequestGroup], "0+")


@message
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = wire(int32, "0+")
    start_offset: int = wire(int64, "0+")
    leader_epoch: int = wire(int32, "0+")
    lag: int = wire(int64, "1+", default=-1, ignorable=True)
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)


@message
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = wire(string, "0+")
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = wire(
        [DescribeShareGroupOffsetsResponsePartition], "0+"
    )


@message
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = wire(string, "0+")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = wire([DescribeShareGroupOffsetsResponseTopic], "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)


@message(versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = wire([DescribeShareGroupOffsetsResponseGroup], "0+")
