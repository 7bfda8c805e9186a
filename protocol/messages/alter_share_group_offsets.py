"""AlterShareGroupOffsets (key 91): change the start offsets of an empty share group (KIP-932).

Version 0, flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, int64, message, string, uuid, wire


@message
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = wire(int32, "0+")
    start_offset: int = wire(int64, "0+")


@message
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = wire(string, "0+")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = wire([AlterShareGroupOffsetsRequestPartition], "0+")


@message(versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str = wire(string, "0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = wire([AlterShareGroupOffsetsRequestTopic], "0+")


@message
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)


@message
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = wire(string, "0+")
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = wire([AlterShareGroupOffsetsResponsePartition], "0+")


@message(versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = wire([AlterShareGroupOffsetsResponseTopic], "0+")
