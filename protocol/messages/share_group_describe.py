"""ShareGroupDescribe (key 77): state and members of share groups (KIP-932).

Version 1, flexible from 0. Version 0 was an early-access version of Kafka 4.0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int16, int32, message, string, uuid, wire


@message(versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[str] = wire([string], "0+")
    include_authorized_operations: bool = wire(boolean, "0+")


@message
class TopicPartitions:
    topic_id: UUID = wire(uuid, "0+")
    topic_name: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class Assignment:
    topic_partitions: list[TopicPartitions] = wire([TopicPartitions], "0+")


@message
class Member:
    member_id: str = wire(string, "0+")
    rack_id: str | None = wire(string, "0+", null="0+", default=None)
    member_epoch: int = wire(int32, "0+")
    client_id: str = wire(string, "0+")
    client_host: str = wire(string, "0+")
    subscribed_topic_names: list[str] = wire([string], "0+")
    assignment: Assignment = wire(Assignment, "0+")


@message
class DescribedGroup:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    group_id: str = wire(string, "0+")
    group_state: str = wire(string, "0+")
    group_epoch: int = wire(int32, "0+")
    assignment_epoch: int = wire(int32, "0+")
    assignor_name: str = wire(string, "0+")
    members: list[Member] = wire([Member], "0+")
    authorized_operations: int = wire(int32, "0+", default=-2_147_483_648)


@message(versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: int = wire(int32, "0+")
    groups: list[DescribedGroup] = wire([DescribedGroup], "0+")
