"""DeleteShareGroupOffsets (key 92): delete the start offsets of topics in an empty share group (KIP-932).

Version 0, flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, message, string, uuid, wire


@message
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = wire(string, "0+")


@message(versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str = wire(string, "0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = wire([DeleteShareGroupOffsetsRequestTopic], "0+")


@message
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = wire(string, "0+")
    topic_id: UUID = wire(uuid, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)


@message(versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = wire([DeleteShareGroupOffsetsResponseTopic], "0+")
