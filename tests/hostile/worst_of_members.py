"""The worst requests of a client that is a member of groups and has a transaction open: what it asks for is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import consumer_group_heartbeat as beat
from barnabas.protocol.messages import streams_group_heartbeat as streams
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.server.apis.handlers.join_group import MAX_METADATA_BYTES, MAX_PROTOCOLS
from barnabas.server.apis.handlers.leave_group import MAX_LEAVING_MEMBERS
from barnabas.server.coordinator.group.consumer_heartbeat import MAX_TOPICS
from barnabas.server.coordinator.group.streams.streams_heartbeat import MAX_SUBTOPOLOGIES, MAX_TOPIC_CONFIGS
from barnabas.server.coordinator.group.streams.streams_heartbeat import MAX_TOPICS as MAX_NAMES

from .worst_requests import FRAME_BYTES, TOPIC, WIDE, WIDE_PARTITIONS, Known, Worst

GROUP, OTHER, CONSUMERS = "of members", "of another", "of consumers"
STREAMS = "of streams"
LEFT = "left"
LEAVERS = 1000
"""Its members, as many as a group may have (`group.max.size`), whom an operator removes."""
TRANSACTION = "open"
MEMBER = "member"
"""Of `CONSUMERS`."""
UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
K = ApiKey


def _names(count: int) -> list[str]:
    return [f"{number:x}" for number in range(count)]


def _streams_joining(name: str, subtopologies: list[streams.Subtopology]) -> streams.StreamsGroupHeartbeatRequest:
    return streams.StreamsGroupHeartbeatRequest(
        group_id=name,
        member_id=MEMBER,
        member_epoch=0,
        rebalance_timeout_ms=600_000,
        process_id="process",
        topology=streams.Topology(epoch=0, subtopologies=subtopologies),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def _streams(count: int) -> streams.StreamsGroupHeartbeatRequest:
    return _streams_joining(f"streams {count}", [streams.Subtopology(subtopology_id="0", source_topics=_names(count))])


def _subtopologies(count: int) -> streams.StreamsGroupHeartbeatRequest:
    """A topology of many tasks of one topic."""
    names = _names(min(count, MAX_SUBTOPOLOGIES))
    return _streams_joining(
        "subtopologies", [streams.Subtopology(subtopology_id=name, source_topics=[TOPIC]) for name in names]
    )


def _changelogs(count: int) -> streams.StreamsGroupHeartbeatRequest:
    """A topology with the most settings of internal topics, none of which exists."""
    settings = [streams.KeyValue(key=str(number), value="") for number in range(MAX_TOPIC_CONFIGS // MAX_NAMES)]
    changelogs = [streams.TopicInfo(name=name, topic_configs=settings) for name in _names(count)]
    return _streams_joining(
        "internal topics",
        [streams.Subtopology(subtopology_id="0", source_topics=[TOPIC], state_changelog_topics=changelogs)],
    )


def streams_joining() -> streams.StreamsGroupHeartbeatRequest:
    """The member of `STREAMS`."""
    return _streams_joining(STREAMS, [streams.Subtopology(subtopology_id="0", source_topics=[TOPIC])])


def _task_offsets(count: int) -> streams.StreamsGroupHeartbeatRequest:
    request = _streams_joining("offsets", [streams.Subtopology(subtopology_id="0", source_topics=[TOPIC])])
    request.task_offsets = [streams.TaskOffset(subtopology_id="0", partition=one, offset=1) for one in range(count)]
    return request


def joining(protocols: int = 1, size: int = 0, group: str = GROUP) -> JoinGroupRequest:
    """A newcomer with so much to say of itself."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=10_000 if group == OTHER else 600_000,
        member_id="",
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=bytes(size // protocols)) for name in _names(protocols)
        ],
    )


def joining_leaver(number: int) -> JoinGroupRequest:
    """A static member of `LEFT`, whose name is known before it is one."""
    request = joining(group=LEFT)
    request.group_instance_id = _leaver(number)
    return request


def _leaver(number: int) -> str:
    return f"{number:x}"


def _left(_: int, __: Known) -> LeaveGroupRequest:
    members = [MemberIdentity(member_id="", group_instance_id=_leaver(number)) for number in range(LEAVERS)]
    return LeaveGroupRequest(group_id=LEFT, members=members)


def _leaving(members: int) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=name) for name in _names(members)])


def _assigned(count: int, known: Known) -> SyncGroupRequest:
    members = [known.member_id, *_names(count)]
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=known.generation,
        member_id=known.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=name, assignment=b"") for name in members],
    )


def added(known: Known, topics: Iterable[tuple[str, list[int]]]) -> AddPartitionsToTxnRequest:
    """Partitions for the transaction."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=known.producer_id,
        v3_and_below_producer_epoch=known.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in topics],
    )


def _of_transactions(name: Callable[[int], str]) -> Callable[[int, Known], AddPartitionsToTxnRequest]:
    def make(count: int, known: Known) -> AddPartitionsToTxnRequest:
        topics = [AddPartitionsToTxnTopic(name=WIDE, partitions=[0])]
        return AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=name(number),
                    producer_id=known.producer_id,
                    producer_epoch=known.producer_epoch,
                    topics=topics,
                )
                for number in range(count)
            ]
        )

    return make


def _with_group(name: str, known: Known) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=known.producer_id, producer_epoch=known.producer_epoch, group_id=GROUP
    )


def _offsets(count: int, known: Known) -> TxnOffsetCommitRequest:
    parts = [
        TxnOffsetCommitRequestPartition(partition_index=number % WIDE_PARTITIONS, committed_offset=1)
        for number in range(min(count, FRAME_BYTES // 30))
    ]
    return TxnOffsetCommitRequest(
        transactional_id=TRANSACTION,
        group_id="of offsets",
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name=WIDE, partitions=parts)],
    )


def _ended(name: str, known: Known) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=known.producer_id, producer_epoch=known.producer_epoch, committed=True
    )


def _beat(
    member: str,
    epoch: int = 0,
    *,
    topics: list[str] | None = None,
    regex: str | None = None,
    owned: list[beat.TopicPartitions] | None = None,
) -> beat.ConsumerGroupHeartbeatRequest:
    return beat.ConsumerGroupHeartbeatRequest(
        group_id=CONSUMERS if member == MEMBER else "of newcomers",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        topic_partitions=owned or [],
    )


def consumer_joining() -> beat.ConsumerGroupHeartbeatRequest:
    """The first beat of `MEMBER`, alone in its group, which so comes to the same again and again."""
    return _beat(MEMBER, topics=[TOPIC])


def _owning(count: int, known: Known) -> beat.ConsumerGroupHeartbeatRequest:
    owned = [beat.TopicPartitions(topic_id=UUID(int=number + 1), partitions=[0]) for number in range(count)]
    return _beat(MEMBER, known.member_epoch, topics=[TOPIC], owned=owned)


WORST_OF_MEMBERS = (
    Worst("protocols", K.JOIN_GROUP, 3, lambda n, _: joining(n), ErrorCode.INVALID_REQUEST),
    Worst(
        "most protocols",
        K.JOIN_GROUP,
        3,
        lambda _, __: joining(MAX_PROTOCOLS, min(FRAME_BYTES, MAX_METADATA_BYTES) * 98 // 100, OTHER),
        ErrorCode.NONE,
    ),
    Worst(
        "a large member",
        K.DESCRIBE_GROUPS,
        5,
        lambda _, __: DescribeGroupsRequest(groups=[OTHER]),
        ErrorCode.NONE,
    ),
    Worst(
        "the same group",
        K.CONSUMER_GROUP_DESCRIBE,
        1,
        lambda n, _: ConsumerGroupDescribeRequest(group_ids=[CONSUMERS] * n),
        ErrorCode.NONE,
    ),
    Worst(
        "the same group",
        K.STREAMS_GROUP_DESCRIBE,
        1,
        lambda n, _: StreamsGroupDescribeRequest(group_ids=[STREAMS] * n),
        ErrorCode.NONE,
    ),
    Worst("topics", K.STREAMS_GROUP_HEARTBEAT, 1, lambda n, _: _streams(n), ErrorCode.STREAMS_INVALID_TOPOLOGY),
    Worst(
        "missing topics",
        K.STREAMS_GROUP_HEARTBEAT,
        1,
        lambda n, _: _streams(min(n, MAX_NAMES)),
        ErrorCode.NONE,
    ),
    Worst(
        "internal topics",
        K.STREAMS_GROUP_HEARTBEAT,
        1,
        lambda n, _: _changelogs(min(n, MAX_NAMES - 1)),
        ErrorCode.NONE,
    ),
    Worst("subtopologies", K.STREAMS_GROUP_HEARTBEAT, 1, lambda n, _: _subtopologies(n), ErrorCode.NONE),
    Worst("offsets", K.STREAMS_GROUP_HEARTBEAT, 1, lambda n, _: _task_offsets(n), ErrorCode.INVALID_REQUEST),
    Worst("assignments", K.SYNC_GROUP, 4, _assigned, ErrorCode.NONE),
    Worst("members", K.LEAVE_GROUP, 4, lambda n, _: _leaving(n), ErrorCode.INVALID_REQUEST),
    Worst("most members", K.LEAVE_GROUP, 4, lambda n, _: _leaving(min(n, MAX_LEAVING_MEMBERS)), UNKNOWN_MEMBER),
    Worst("all members", K.LEAVE_GROUP, 4, _left, ErrorCode.NONE),
    Worst(
        "topics", K.CONSUMER_GROUP_HEARTBEAT, 1, lambda n, _: _beat("a", topics=_names(n)), ErrorCode.INVALID_REQUEST
    ),
    Worst(
        "most topics",
        K.CONSUMER_GROUP_HEARTBEAT,
        1,
        lambda n, _: _beat("a", topics=_names(min(n, MAX_TOPICS))),
        ErrorCode.NONE,
    ),
    Worst("owned partitions", K.CONSUMER_GROUP_HEARTBEAT, 1, _owning, ErrorCode.NONE),
    Worst(
        "a long pattern",
        K.CONSUMER_GROUP_HEARTBEAT,
        1,
        lambda n, _: _beat("b", regex="(a|b)*" * (n // 6)),
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ),
    Worst(
        "a pattern",
        K.CONSUMER_GROUP_HEARTBEAT,
        1,
        lambda _, __: _beat("b", regex="(a|b)*" * 500),
        ErrorCode.NONE,
    ),
    Worst(
        "partitions",
        K.ADD_PARTITIONS_TO_TXN,
        3,
        lambda n, known: added(known, [(WIDE, [number % WIDE_PARTITIONS for number in range(n)])]),
        ErrorCode.NONE,
    ),
    Worst(
        "unknown partitions",
        K.ADD_PARTITIONS_TO_TXN,
        3,
        lambda n, known: added(known, [(TOPIC, list(range(n)))]),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    Worst(
        "unknown topics",
        K.ADD_PARTITIONS_TO_TXN,
        3,
        lambda n, known: added(known, [(name, [0]) for name in _names(n)]),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    Worst(
        "transactions",
        K.ADD_PARTITIONS_TO_TXN,
        5,
        _of_transactions(lambda number: f"{number:x}"),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    Worst("the same transaction", K.ADD_PARTITIONS_TO_TXN, 5, _of_transactions(lambda _: TRANSACTION), ErrorCode.NONE),
    Worst("a group", K.ADD_OFFSETS_TO_TXN, 4, lambda _, known: _with_group(TRANSACTION, known), ErrorCode.NONE),
    Worst(
        "a long name",
        K.ADD_OFFSETS_TO_TXN,
        4,
        lambda n, known: _with_group("x" * n, known),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    Worst("partitions", K.TXN_OFFSET_COMMIT, 5, _offsets, ErrorCode.NONE),
    Worst(
        "ids",
        K.DESCRIBE_TRANSACTIONS,
        0,
        lambda n, _: DescribeTransactionsRequest(transactional_ids=_names(n)),
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ),
    Worst(
        "the same id",
        K.DESCRIBE_TRANSACTIONS,
        0,
        lambda n, _: DescribeTransactionsRequest(transactional_ids=[TRANSACTION] * n),
        ErrorCode.NONE,
    ),
    Worst("all of it", K.END_TXN, 4, lambda _, known: _ended(TRANSACTION, known), ErrorCode.NONE),
    Worst("a long name", K.END_TXN, 4, lambda n, known: _ended("x" * n, known), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
)
