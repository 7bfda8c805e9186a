"""The records of coordinators in `__consumer_offsets` and `__transaction_state`.

Keys and values each start with a version (`codec.encode_versioned`). The version of a key is also the type of the
record: in `__consumer_offsets` 0 and 1 are an offset, 2 is a classic group, 3 to 8 and 16 belong to a group of the
consumer protocol (KIP-848), and the others are in `share_group_records` and `streams_group_records`; in
`__transaction_state` 0 is a transaction. A null value deletes the key's entry.
"""

from __future__ import annotations

from uuid import UUID

from .schema import bytes_, int8, int16, int32, int64, message, string, uuid, wire


@message(versions="0-1")
class OffsetCommitKey:
    """Key of an offset: a group and a partition. Version 0 was written before Kafka 0.9, 1 since."""

    group: str = wire(string, "0+")
    topic: str = wire(string, "0+")
    partition: int = wire(int32, "0+")


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset. Kafka writes v1 if there is an expiry, v3 otherwise."""

    offset: int = wire(int64, "0+")
    leader_epoch: int = wire(int32, "3+", default=-1, ignorable=True)
    metadata: str = wire(string, "0+")
    commit_timestamp: int = wire(int64, "0+")
    expire_timestamp: int = wire(int64, "1", default=-1, ignorable=True)
    topic_id: UUID = wire(uuid, "4+", tag=0, ignorable=True)


@message(versions="2")
class GroupMetadataKey:
    """Key of a group."""

    group: str = wire(string, "2+")


@message
class MemberMetadata:
    """A member of a group and its part in the generation."""

    member_id: str = wire(string, "0+")
    group_instance_id: str | None = wire(string, "3+", null="3+", default=None, ignorable=True)
    client_id: str = wire(string, "0+")
    client_host: str = wire(string, "0+")
    rebalance_timeout: int = wire(int32, "1+", default=-1, ignorable=True)
    session_timeout: int = wire(int32, "0+")
    subscription: bytes = wire(bytes_, "0+")
    assignment: bytes = wire(bytes_, "0+")


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A generation of a group. Kafka writes v3."""

    protocol_type: str = wire(string, "0+")
    generation: int = wire(int32, "0+")
    protocol: str | None = wire(string, "0+", null="0+")
    leader: str | None = wire(string, "0+", null="0+")
    current_state_timestamp: int = wire(int64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = wire([MemberMetadata], "0+")


@message(versions="3")
class ConsumerGroupMetadataKey:
    """Key of a group of the consumer protocol."""

    group_id: str = wire(string, "3+")


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The epoch of a group, and the hash of its topics' metadata (0 in records of Kafka 4.0 and older)."""

    epoch: int = wire(int32, "0+")
    metadata_hash: int = wire(int64, "0+", tag=0)


@message(versions="4")
class ConsumerGroupPartitionMetadataKey:
    """Key of a group's topics."""

    group_id: str = wire(string, "4+")


@message(versions="5")
class ConsumerGroupMemberMetadataKey:
    """Key of a member."""

    group_id: str = wire(string, "5+")
    member_id: str = wire(string, "5+")


@message
class ClassicProtocol:
    """An assignor of a member of the classic protocol, with its metadata."""

    name: str = wire(string, "0+")
    metadata: bytes = wire(bytes_, "0+")


@message
class ClassicMemberMetadata:
    """The data of a member with the classic protocol."""

    session_timeout_ms: int = wire(int32, "0+")
    supported_protocols: list[ClassicProtocol] = wire([ClassicProtocol], "0+")


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """The subscription of a member. Null is a member without the classic protocol; a missing value is not null."""

    instance_id: str | None = wire(string, "0+", null="0+")
    rack_id: str | None = wire(string, "0+", null="0+")
    client_id: str = wire(string, "0+")
    client_host: str = wire(string, "0+")
    subscribed_topic_names: list[str] = wire([string], "0+")
    subscribed_topic_regex: str | None = wire(string, "0+", null="0+")
    rebalance_timeout_ms: int = wire(int32, "0+", default=-1)
    server_assignor: str | None = wire(string, "0+", null="0+")
    classic_member_metadata: ClassicMemberMetadata | None = wire(ClassicMemberMetadata, "0+", null="0+", tag=0)


@message(versions="6")
class ConsumerGroupTargetAssignmentMetadataKey:
    """Key of a group's target assignment."""

    group_id: str = wire(string, "6+")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch of the target assignment, and the time of its computation in ms (KIP-1263), 0 if unknown."""

    assignment_epoch: int = wire(int32, "0+")
    assignment_timestamp: int = wire(int64, "0+", tag=0, ignorable=True)


@message(versions="7")
class ConsumerGroupTargetAssignmentMemberKey:
    """Key of a member's target assignment."""

    group_id: str = wire(string, "7+")
    member_id: str = wire(string, "7+")


@message
class AssignedTopic:
    """Partitions of one topic."""

    topic_id: UUID = wire(uuid, "0+")
    partitions: list[int] = wire([int32], "0+")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The member's target, to be assigned after other members have revoked it."""

    topic_partitions: list[AssignedTopic] = wire([AssignedTopic], "0+")


@message(versions="8")
class ConsumerGroupCurrentMemberAssignmentKey:
    """Key of a member's present assignment."""

    group_id: str = wire(string, "8+")
    member_id: str = wire(string, "8+")


@message
class CurrentlyAssignedTopic:
    """Partitions of one topic, and the member epoch in which each of them was assigned (KIP-1251).

    `assignment_epochs` has an item for each partition; it is empty in records of Kafka 4.3 and older, or null.
    """

    topic_id: UUID = wire(uuid, "0+")
    partitions: list[int] = wire([int32], "0+")
    assignment_epochs: list[int] | None = wire([int32], "0+", null="0+", tag=0)


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The member's present assignment, and its progress towards the target."""

    member_epoch: int = wire(int32, "0+")
    previous_member_epoch: int = wire(int32, "0+")
    state: int = wire(int8, "0+")
    assigned_partitions: list[CurrentlyAssignedTopic] = wire([CurrentlyAssignedTopic], "0+")
    partitions_pending_revocation: list[CurrentlyAssignedTopic] = wire([CurrentlyAssignedTopic], "0+")


@message(versions="16")
class ConsumerGroupRegularExpressionKey:
    """Key of a regular expression of a group."""

    group_id: str = wire(string, "16+")
    regular_expression: str = wire(string, "16+")


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics whose names it matched, the time, and the version of the cluster's metadata."""

    topics: list[str] = wire([string], "0+")
    version: int = wire(int64, "0+")
    timestamp: int = wire(int64, "0+")


@message(versions="0")
class TransactionLogKey:
    """Key of a transactional id."""

    transactional_id: str = wire(string, "0+")


@message
class PartitionsSchema:
    """Partitions of one topic in a transaction."""

    topic: str = wire(string, "0+")
    partition_ids: list[int] = wire([int32], "0+")


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of a transactional id. Kafka writes v1 once transaction protocol v2 is enabled, v0 before."""

    producer_id: int = wire(int64, "0+")
    previous_producer_id: int = wire(int64, "1+", default=-1, tag=0)
    next_producer_id: int = wire(int64, "1+", default=-1, tag=1)
    producer_epoch: int = wire(int16, "0+")
    next_producer_epoch: int = wire(int16, "1+", default=-1, tag=3)
    transaction_timeout_ms: int = wire(int32, "0+")
    transaction_status: int = wire(int8, "0+")
    transaction_partitions: list[PartitionsSchema] | None = wire([PartitionsSchema], "0+", null="0+")
    transaction_last_update_timestamp_ms: int = wire(int64, "0+")
    transaction_start_timestamp_ms: int = wire(int64, "0+")
    client_transaction_version: int = wire(int16, "1+", tag=2)
