"""What coordinators write into `__consumer_offsets` and `__transaction_state`.

Keys and values each start with a version (`codec.encode_versioned`). The version of a key also says what the record
is: in `__consumer_offsets` 0 and 1 are an offset, 2 is a classic group, 3 to 8 and 16 belong to a group of the consumer
protocol (KIP-848); in `__transaction_state` 0 is a transaction. A null value removes what the key names.
"""

from __future__ import annotations

from uuid import UUID

from .schema import bytes_, int8, int16, int32, int64, message, string, uuid, wire


@message(versions="0-1")
class OffsetCommitKey:
    """Whose offset: a group and a partition. Version 0 was written before Kafka 0.9, 1 since."""

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
    """Which group."""

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
    """Which group of the consumer protocol."""

    group_id: str = wire(string, "3+")


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """How often the group has changed, and what its topics looked like then (0 where Kafka 4.0 and older wrote it)."""

    epoch: int = wire(int32, "0+")
    metadata_hash: int = wire(int64, "0+", tag=0)


@message(versions="4")
class ConsumerGroupPartitionMetadataKey:
    """Which group's topics."""

    group_id: str = wire(string, "4+")


@message(versions="5")
class ConsumerGroupMemberMetadataKey:
    """Which member."""

    group_id: str = wire(string, "5+")
    member_id: str = wire(string, "5+")


@message
class ClassicProtocol:
    """An assignor that a member of the classic protocol knows, and what it says under it."""

    name: str = wire(string, "0+")
    metadata: bytes = wire(bytes_, "0+")


@message
class ClassicMemberMetadata:
    """What is to be known of a member that speaks the classic protocol."""

    session_timeout_ms: int = wire(int32, "0+")
    supported_protocols: list[ClassicProtocol] = wire([ClassicProtocol], "0+")


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """What a member wants. Null stands for a member without the classic protocol; what is missing is not null."""

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
    """Which group's target assignment."""

    group_id: str = wire(string, "6+")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch that the target assignment was made for."""

    assignment_epoch: int = wire(int32, "0+")


@message(versions="7")
class ConsumerGroupTargetAssignmentMemberKey:
    """Which member's target assignment."""

    group_id: str = wire(string, "7+")
    member_id: str = wire(string, "7+")


@message
class AssignedTopic:
    """Partitions of one topic."""

    topic_id: UUID = wire(uuid, "0+")
    partitions: list[int] = wire([int32], "0+")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """What the member shall have once the others have let go of it."""

    topic_partitions: list[AssignedTopic] = wire([AssignedTopic], "0+")


@message(versions="8")
class ConsumerGroupCurrentMemberAssignmentKey:
    """Which member's present assignment."""

    group_id: str = wire(string, "8+")
    member_id: str = wire(string, "8+")


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """What the member has, and how far it is on the way to its target."""

    member_epoch: int = wire(int32, "0+")
    previous_member_epoch: int = wire(int32, "0+")
    state: int = wire(int8, "0+")
    assigned_partitions: list[AssignedTopic] = wire([AssignedTopic], "0+")
    partitions_pending_revocation: list[AssignedTopic] = wire([AssignedTopic], "0+")


@message(versions="16")
class ConsumerGroupRegularExpressionKey:
    """Which regular expression of a group."""

    group_id: str = wire(string, "16+")
    regular_expression: str = wire(string, "16+")


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics whose names it matched, when, and by which version of the cluster's metadata."""

    topics: list[str] = wire([string], "0+")
    version: int = wire(int64, "0+")
    timestamp: int = wire(int64, "0+")


@message(versions="0")
class TransactionLogKey:
    """Which transactional id."""

    transactional_id: str = wire(string, "0+")


@message
class PartitionsSchema:
    """Partitions of one topic that take part in a transaction."""

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
