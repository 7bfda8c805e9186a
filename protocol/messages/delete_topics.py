"""DeleteTopics (key 20): delete topics.

Versions 0-6, flexible from 4.
   1  response adds throttle_time_ms
   2  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  may return TOPIC_DELETION_DISABLED
   5  error message; may return THROTTLING_QUOTA_EXCEEDED
   6  by name or by topic id
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, message, string, uuid, wire


@message
class DeleteTopicState:
    name: str | None = wire(string, "6+", null="6+", default=None)
    topic_id: UUID = wire(uuid, "6+")


@message(versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = wire([DeleteTopicState], "6+")
    topic_names: list[str] = wire([string], "0-5", ignorable=True)
    timeout_ms: int = wire(int32, "0+")


@message
class DeletableTopicResult:
    name: str | None = wire(string, "0+", null="6+")
    topic_id: UUID = wire(uuid, "6+", ignorable=True)
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "5+", null="5+", default=None, ignorable=True)


@message(versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    responses: list[DeletableTopicResult] = wire([DeletableTopicResult], "0+")
