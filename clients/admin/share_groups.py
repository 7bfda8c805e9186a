"""Share groups (KIP-932): descriptions, and the start offsets of their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ...protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ...protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
)
from ...protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from ...protocol.topic_partition import TopicPartition, indexes_by_topic
from ..connection import BrokerConnection
from ..errors import code_of
from .outcomes import Outcome, outcome

SHARE = "share"
"""The type of share groups in listings."""


class ShareMemberDescription(NamedTuple):
    """One member of a share group; several members may have the same partitions."""

    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    host: str
    topics: frozenset[str]
    assigned: tuple[TopicPartition, ...]


class ShareGroupDescription(NamedTuple):
    """One share group; `coordinator` is the address of its coordinator."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    coordinator: str
    members: tuple[ShareMemberDescription, ...]


class SharePartitionOffset(NamedTuple):
    """The start offset (SPSO) of a share group in one partition: all records before it are acknowledged or archived.

    An unknown value is None: the group has not fetched from the partition, or the broker does not report the lag
    (before Kafka 4.2).
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None


ShareOffsets = dict[TopicPartition, SharePartitionOffset]


async def describe_share_groups_on(
    connection: BrokerConnection, group_ids: list[str]
) -> dict[str, ShareGroupDescription | KafkaError]:
    """Describe share groups of this coordinator."""
    response = await connection.send(ShareGroupDescribeRequest(group_ids=group_ids))
    return {group.group_id: _description(group, connection) for group in response.groups}


def _description(group: DescribedGroup, connection: BrokerConnection) -> ShareGroupDescription | KafkaError:
    if group.error_code != ErrorCode.NONE:
        return KafkaError(code_of(group.error_code), group.error_message or f"group {group.group_id!r}")
    members = tuple(
        ShareMemberDescription(
            m.member_id,
            m.member_epoch,
            m.rack_id,
            m.client_id,
            m.client_host,
            frozenset(m.subscribed_topic_names),
            tuple(sorted(TopicPartition(t.topic_name, p) for t in m.assignment.topic_partitions for p in t.partitions)),
        )
        for m in sorted(group.members, key=lambda m: m.member_id)
    )
    return ShareGroupDescription(
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        connection.address,
        members,
    )


async def share_offsets_on(
    connection: BrokerConnection, group_ids: list[str], partitions: Iterable[TopicPartition] | None
) -> dict[str, ShareOffsets | KafkaError]:
    """Return the start offsets of share groups of this coordinator, for these partitions or for all."""
    topics = None
    if partitions is not None:
        topics = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in indexes_by_topic(partitions).items()
        ]
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics) for group_id in group_ids]
    response = await connection.send(DescribeShareGroupOffsetsRequest(groups=groups))
    return {group.group_id: _offsets(group) for group in response.groups}


def _offsets(group: DescribeShareGroupOffsetsResponseGroup) -> ShareOffsets | KafkaError:
    """Return the offsets, without partitions that have an error, as in Kafka's client."""
    error = outcome(group.error_code, group.error_message or f"group {group.group_id!r}")
    if error is not None:
        return error
    return {
        TopicPartition(topic.topic_name, p.partition_index): SharePartitionOffset(
            p.start_offset if p.start_offset >= 0 else None,
            p.leader_epoch if p.leader_epoch >= 0 else None,
            p.lag if p.lag >= 0 else None,
        )
        for topic in group.topics
        for p in topic.partitions
        if p.error_code == ErrorCode.NONE
    }


async def alter_share_offsets_on(
    connection: BrokerConnection, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Outcome] | KafkaError:
    """Set start offsets of an empty share group."""
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for tp, offset in offsets.items():
        topic = topics.setdefault(tp.topic, AlterShareGroupOffsetsRequestTopic(topic_name=tp.topic))
        topic.partitions.append(
            AlterShareGroupOffsetsRequestPartition(partition_index=tp.partition, start_offset=offset)
        )
    response = await connection.send(AlterShareGroupOffsetsRequest(group_id=group_id, topics=list(topics.values())))
    error = outcome(response.error_code, response.error_message or f"group {group_id!r}")
    return error or {
        TopicPartition(topic.topic_name, p.partition_index): outcome(p.error_code, p.error_message)
        for topic in response.responses
        for p in topic.partitions
    }


async def delete_share_offsets_on(
    connection: BrokerConnection, group_id: str, topics: Iterable[str]
) -> dict[str, Outcome] | KafkaError:
    """Delete the start offsets of topics of an empty share group."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    )
    response = await connection.send(request)
    error = outcome(response.error_code, response.error_message or f"group {group_id!r}")
    return error or {topic.topic_name: outcome(topic.error_code, topic.error_message) for topic in response.responses}
