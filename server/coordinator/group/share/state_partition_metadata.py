"""The partitions of a group whose share state exists, is being created or is being deleted. No I/O, no time.

Kafka: ShareGroup.ShareGroupStatePartitionMetadataInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from ..assignment import Assignment


class TopicState(NamedTuple):
    """Partitions of one topic (Kafka: InitMapValue)."""

    name: str
    partitions: frozenset[int]
    timestamp_ms: int
    """The time at which the initialization began. It is repeated after the retry interval."""


Topics = Mapping[UUID, TopicState]
NO_TOPICS: Topics = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StatePartitionMetadata:
    """The record of the share state of a group's partitions; a change creates another object.

    A partition is assigned to members only after its state is initialized. A topic is in `deleting` from the start of a
    deletion until the share coordinator has deleted the state of all its partitions.
    """

    initializing: Topics = field(default_factory=lambda: NO_TOPICS)
    initialized: Topics = field(default_factory=lambda: NO_TOPICS)
    deleting: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    """The names of topics by id."""

    def begin_initialization(self, topics: Topics) -> StatePartitionMetadata:
        """Add partitions to `initializing`, and remove their topics from `deleting`."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics}
        return replace(self, initializing=_union(self.initializing, topics), deleting=deleting)

    def finish_initialization(self, topics: Topics) -> StatePartitionMetadata:
        """Move partitions from `initializing` to `initialized`."""
        return replace(
            self,
            initializing=_difference(self.initializing, topics),
            initialized=_union(self.initialized, topics),
        )

    def cancel_initialization(self, topics: Topics) -> StatePartitionMetadata:
        """Remove partitions from `initializing`: the next heartbeat tries again."""
        return replace(self, initializing=_difference(self.initializing, topics))

    def begin_deletion(self, topics: Mapping[UUID, str]) -> StatePartitionMetadata:
        """Move initialized topics to `deleting`."""
        initialized = {topic_id: state for topic_id, state in self.initialized.items() if topic_id not in topics}
        return replace(self, initialized=initialized, deleting={**self.deleting, **topics})

    def finish_deletion(self, topic_ids: Iterable[UUID]) -> StatePartitionMetadata:
        """Remove topics from `deleting`."""
        deleting = dict(self.deleting)
        for topic_id in topic_ids:
            deleting.pop(topic_id, None)
        return replace(self, deleting=deleting)

    def remove_topics(self, topic_ids: Iterable[UUID]) -> StatePartitionMetadata:
        """Remove topics that do not exist any more."""
        removed = frozenset(topic_ids)
        return StatePartitionMetadata(
            {topic_id: state for topic_id, state in self.initializing.items() if topic_id not in removed},
            {topic_id: state for topic_id, state in self.initialized.items() if topic_id not in removed},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in removed},
        )

    @property
    def topic_ids(self) -> frozenset[UUID]:
        """The ids of all topics in the record."""
        return frozenset((*self.initializing, *self.initialized, *self.deleting))

    def initialized_partitions(self) -> Assignment:
        """Return the partitions whose state is initialized."""
        return {topic_id: state.partitions for topic_id, state in self.initialized.items()}


def _union(left: Topics, right: Topics) -> Topics:
    result = dict(left)
    for topic_id, state in right.items():
        former = result.get(topic_id)
        if former is not None:
            state = state._replace(partitions=former.partitions | state.partitions)
        result[topic_id] = state
    return result


def _difference(left: Topics, right: Topics) -> Topics:
    result = dict(left)
    for topic_id, state in right.items():
        former = result.get(topic_id)
        if former is None:
            continue
        rest = former.partitions - state.partitions
        if rest:
            result[topic_id] = former._replace(partitions=rest)
        else:
            del result[topic_id]
    return result
