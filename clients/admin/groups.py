"""Listings of groups and their lag."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...protocol.topic_partition import TopicPartition
from ..group.offset_requests import (
    OffsetAndMetadata,
)
from .outcomes import Outcome, outcome

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
    """The lag of a group in one partition; an unknown value, such as an offset that was never committed, is None."""

    group_id: str
    partition: TopicPartition
    committed: int | None
    end: int | None
    member_id: str | None
    client_id: str | None
    host: str | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


def outcomes_by_partition(topics: Iterable[Any]) -> dict[TopicPartition, Outcome]:
    return {
        TopicPartition(topic.name, p.partition_index): outcome(p.error_code, f"{topic.name}-{p.partition_index}")
        for topic in topics
        for p in topic.partitions
    }
