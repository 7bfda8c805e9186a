"""Listings of groups and their lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..group.offset_requests import (
    OffsetAndMetadata,
)
from .group_descriptions import GroupDescription, GroupMember
from .outcomes import Outcome, outcome
from .share_groups import SHARE, ShareGroupDescription, ShareOffsets
from .streams_groups import STREAMS, StreamsGroupDescription, StreamsMemberDescription

Committed = dict[TopicPartition, OffsetAndMetadata]

FIRST_LIST_WITH_STATES = 4
FIRST_LIST_WITH_TYPES = 5
FIRST_LEAVE_OF_MANY = 3


class GroupListing(NamedTuple):
    """One group as its coordinator lists it; `state` and `type` are empty if the broker does not report them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class PartitionLag(NamedTuple):
    """The lag of a group in one partition; an unknown value, such as an offset that was never committed, is None.

    `type` is the type of the group as in listings, empty if the group has only offsets. `committed` is the start offset
    in a share group, and its coordinator determines its `lag`. `member_id`, `client_id` and `host` describe the member
    with the partition, and are None in a share group. `members` has the ids of all members with the partition, several
    only in a share group.
    """

    group_id: str
    type: str
    partition: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    member_id: str | None
    client_id: str | None
    host: str | None
    members: frozenset[str]


def outcomes_by_partition(topics: Iterable[Any]) -> dict[TopicPartition, Outcome]:
    return {
        TopicPartition(topic.name, p.partition_index): outcome(p.error_code, f"{topic.name}-{p.partition_index}")
        for topic in topics
        for p in topic.partitions
    }


def is_of_another_type(described: object) -> bool:
    """Whether the response to a request for one type of groups permits that the group has another type."""
    return isinstance(described, KafkaError) and described.code in (
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
    )


def offsets_lag(
    group_id: str, group: GroupDescription | StreamsGroupDescription | KafkaError, offsets: Committed | KafkaError
) -> list[PartitionLag]:
    """Return the partitions of a group with committed offsets, without their ends. Raises KafkaError."""
    if isinstance(offsets, KafkaError):
        raise offsets
    owners: Mapping[TopicPartition, GroupMember | StreamsMemberDescription] = {}
    kind = ""
    if isinstance(group, StreamsGroupDescription):
        owners, kind = group.owners(), STREAMS
    elif isinstance(group, GroupDescription):
        owners, kind = {tp: member for member in group.members for tp in member.assigned}, group.type
    lags = []
    for tp in sorted(offsets.keys() | owners.keys()):
        at, owner = offsets.get(tp), owners.get(tp)
        lags.append(
            PartitionLag(
                group_id,
                kind,
                tp,
                committed=at.offset if at is not None else None,
                end=None,
                lag=None,
                member_id=owner.member_id if owner is not None else None,
                client_id=owner.client_id if owner is not None else None,
                host=owner.host if owner is not None else None,
                members=frozenset([owner.member_id] if owner is not None else []),
            )
        )
    return lags


def share_group_lag(group: ShareGroupDescription, offsets: ShareOffsets | KafkaError) -> list[PartitionLag]:
    """Return the partitions of a share group with a start offset, without their ends. Raises KafkaError."""
    if isinstance(offsets, KafkaError):
        raise offsets
    members: dict[TopicPartition, set[str]] = {}
    for member in group.members:
        for tp in member.assigned:
            members.setdefault(tp, set()).add(member.member_id)
    return [
        PartitionLag(
            group.group_id,
            SHARE,
            tp,
            committed=at.start_offset,
            end=None,
            lag=at.lag,
            member_id=None,
            client_id=None,
            host=None,
            members=frozenset(members.get(tp, ())),
        )
        for tp, at in sorted(offsets.items())
    ]


def with_end(one: PartitionLag, end: int | None) -> PartitionLag:
    """Add the log end offset, and the lag unless the coordinator has reported it."""
    if one.type == SHARE or one.committed is None or end is None:
        return one._replace(end=end)
    return one._replace(end=end, lag=max(0, end - one.committed))
