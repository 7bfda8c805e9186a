"""OffsetCommit and OffsetFetch as data: requests made from offsets, offsets read from responses. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition, indexes_by_topic
from ..cluster import ClusterView
from ..errors import code_of
from .membership import OUTSIDE, Generation

_FIRST_FETCH_WITH_STABLE = 7
_FIRST_FETCH_WITH_GROUPS = 8


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next record to be read. `leader_epoch` of the record before it, -1 if unknown."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


NO_IDS: Mapping[str, UUID] = MappingProxyType({})
Committed = dict[TopicPartition, OffsetAndMetadata]


def topic_ids(cluster: ClusterView, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
    """Return the topic ids by name; empty unless all are known, since a request uses either ids or names."""
    ids = {topic: cluster.topic_id(topic) for topic in {tp.topic for tp in partitions}}
    return {} if ZERO_UUID in ids.values() else ids


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    sender: Generation = OUTSIDE,
    group_instance_id: str | None = None,
    *,
    ids: Mapping[str, UUID] = NO_IDS,
) -> OffsetCommitRequest:
    """Build a commit of a member of a generation, or (OUTSIDE) of a group without members. `ids` apply from version 10
    on.
    """
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for tp, at in offsets.items():
        named = OffsetCommitRequestTopic(name=tp.topic, topic_id=ids.get(tp.topic, ZERO_UUID))
        topic = topics.setdefault(tp.topic, named)
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=at.offset,
                committed_leader_epoch=at.leader_epoch,
                committed_metadata=at.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=sender.number,
        member_id=sender.member_id,
        group_instance_id=group_instance_id,
        topics=list(topics.values()),
    )


def fetch_requests(
    group_ids: Sequence[str],
    partitions: Iterable[TopicPartition] | None,
    version: int,
    ids: Mapping[str, UUID] = NO_IDS,
) -> list[OffsetFetchRequest]:
    """Build requests for these offsets, or all, of the groups: one request, or one per group before version 8.

    The broker waits for open transactions that change these offsets (KIP-447). `ids` apply from version 10 on.
    """
    topics = None if partitions is None else indexes_by_topic(partitions)
    stable = version >= _FIRST_FETCH_WITH_STABLE
    if version >= _FIRST_FETCH_WITH_GROUPS:
        named = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=name, topic_id=ids.get(name, ZERO_UUID), partition_indexes=list(indexes))
                for name, indexes in topics.items()
            ]
        )
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=named) for group_id in group_ids]
        return [OffsetFetchRequest(groups=groups, require_stable=stable)]
    own = (
        None
        if topics is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes)) for name, indexes in topics.items()]
    )
    return [OffsetFetchRequest(group_id=group_id, topics=own, require_stable=stable) for group_id in group_ids]


def committed_offsets(
    group_ids: Sequence[str], responses: Sequence[OffsetFetchResponse], ids: Mapping[str, UUID] = NO_IDS
) -> dict[str, Committed | KafkaError]:
    """Parse the responses to `fetch_requests`: offsets by group, without missing ones, or the group's error."""
    names = {topic_id: name for name, topic_id in ids.items()}
    groups: list[tuple[str, OffsetFetchResponse | OffsetFetchResponseGroup]] = []
    for group_id, response in zip(group_ids, responses, strict=False):
        groups += [(g.group_id, g) for g in response.groups] or [(group_id, response)]
    return {group_id: _committed(group_id, group, names) for group_id, group in groups}


def _committed(
    group_id: str, group: OffsetFetchResponse | OffsetFetchResponseGroup, names: Mapping[UUID, str]
) -> Committed | KafkaError:
    if group.error_code != ErrorCode.NONE:
        return KafkaError(code_of(group.error_code), f"offsets of group {group_id!r}")
    found: Committed = {}
    for topic in group.topics:
        name = topic.name
        if isinstance(topic, OffsetFetchResponseTopics) and topic.topic_id != ZERO_UUID:
            name = names.get(topic.topic_id, str(topic.topic_id))
        for p in topic.partitions:
            code = code_of(p.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return KafkaError(code, f"offset of group {group_id!r} in {name}-{p.partition_index}")
            if p.committed_offset >= 0:
                found[TopicPartition(name, p.partition_index)] = OffsetAndMetadata(
                    p.committed_offset, p.metadata or "", p.committed_leader_epoch
                )
    return found
