"""ShareGroupHeartbeat (key 76): membership in a share group (KIP-932).

Version 1, flexible from 0. Version 0 was an early-access version of Kafka 4.0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, message, string, uuid, wire


@message(versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str = wire(string, "0+")
    member_id: str = wire(string, "0+")
    member_epoch: int = wire(int32, "0+")
    rack_id: str | None = wire(string, "0+", null="0+", default=None)
    subscribed_topic_names: list[str] | None = wire([string], "0+", null="0+", default=None)


@message
class TopicPartitions:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class Assignment:
    topic_partitions: list[TopicPartitions] = wire([TopicPartitions], "0+")


@message(versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    member_id: str | None = wire(string, "0+", null="0+", default=None)
    member_epoch: int = wire(int32, "0+")
    heartbeat_interval_ms: int = wire(int32, "0+")
    assignment: Assignment | None = wire(Assignment, "0+", null="0+", default=None)
