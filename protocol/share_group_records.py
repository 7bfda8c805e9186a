"""The records of share groups in `__consumer_offsets` (KIP-932): types 10 to 15.

Keys and values are as in `coordinator_records`. Type 9, ShareGroupPartitionMetadata, existed only while share groups
were in early access.
"""

from __future__ import annotations

from uuid import UUID

from .coordinator_records import AssignedTopic
from .schema import int8, int32, int64, message, string, uuid, wire


@message(versions="10")
class ShareGroupMemberMetadataKey:
    """Key of a member."""

    group_id: str = wire(string, "10+")
    member_id: str = wire(string, "10+")


@message(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """The subscription of a member."""

    rack_id: str | None = wire(string, "0+", null="0+")
    client_id: str = wire(string, "0+")
    client_host: str = wire(string, "0+")
    subscribed_topic_names: list[str] = wire([string], "0+")


@message(versions="11")
class ShareGroupMetadataKey:
    """Key of a share group."""

    group_id: str = wire(string, "11+")


@message(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The epoch of a group, and the hash of its topics' metadata."""

    epoch: int = wire(int32, "0+")
    metadata_hash: int = wire(int64, "0+")


@message(versions="12")
class ShareGroupTargetAssignmentMetadataKey:
    """Key of a group's target assignment."""

    group_id: str = wire(string, "12+")


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The group epoch of the target assignment, and the time of its computation in ms (KIP-1263), 0 if unknown."""

    assignment_epoch: int = wire(int32, "0+")
    assignment_timestamp: int = wire(int64, "0+", tag=0, ignorable=True)


@message(versions="13")
class ShareGroupTargetAssignmentMemberKey:
    """Key of a member's target assignment."""

    group_id: str = wire(string, "13+")
    member_id: str = wire(string, "13+")


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The member's target assignment."""

    topic_partitions: list[AssignedTopic] = wire([AssignedTopic], "0+")


@message(versions="14")
class ShareGroupCurrentMemberAssignmentKey:
    """Key of a member's present assignment."""

    group_id: str = wire(string, "14+")
    member_id: str = wire(string, "14+")


@message(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The member's present assignment and its epochs."""

    member_epoch: int = wire(int32, "0+")
    previous_member_epoch: int = wire(int32, "0+")
    state: int = wire(int8, "0+")
    assigned_partitions: list[AssignedTopic] = wire([AssignedTopic], "0+")


@message(versions="15")
class ShareGroupStatePartitionMetadataKey:
    """Key of the share-partitions of a group."""

    group_id: str = wire(string, "15+")


@message
class TopicPartitionsInfo:
    """Partitions of one topic, with its name."""

    topic_id: UUID = wire(uuid, "0+")
    topic_name: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class TopicInfo:
    """A topic and its name."""

    topic_id: UUID = wire(uuid, "0+")
    topic_name: str = wire(string, "0+")


@message(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The partitions whose state the share coordinator has, is creating or is deleting for a group."""

    initializing_topics: list[TopicPartitionsInfo] = wire([TopicPartitionsInfo], "0+")
    initialized_topics: list[TopicPartitionsInfo] = wire([TopicPartitionsInfo], "0+")
    deleting_topics: list[TopicInfo] = wire([TopicInfo], "0+")
