"""Partitions found on disk that the store does not know: what another broker's log directory brings along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ...protocol.topic_partition import TopicPartition
from ..metadata.topic_names import CLUSTER_METADATA_TOPIC, is_legal
from ..metadata.znodes import TopicRegistration


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A partition folder of this broker."""

    topic_id: UUID | None = None
    """From `partition.metadata`; None where there is no such file."""
    latest_leader_epoch: int = -1
    """The highest epoch in its leader epoch checkpoint; elections must go on above it. -1: none."""


@dataclass(slots=True)
class Adoption:
    """A topic of which at least one partition was found and is unknown."""

    name: str
    known: TopicRegistration | None
    found: dict[int, FoundReplica] = field(default_factory=dict)

    @property
    def topic_id(self) -> UUID | None:
        """The id that the topic has, if any folder says so. Where folders disagree, the lowest partition decides."""
        if self.known is not None:
            return self.known.topic_id
        return next((self.found[index].topic_id for index in sorted(self.found) if self.found[index].topic_id), None)

    @property
    def missing_partitions(self) -> range:
        """The partitions to register: up to the highest found, those between without a folder included."""
        first = 0 if self.known is None else len(self.known.assignment)
        return range(first, max(self.found) + 1)

    def leader_epoch(self, partition: int) -> int:
        """The epoch that was last used for a partition."""
        replica = self.found.get(partition)
        return -1 if replica is None else replica.latest_leader_epoch


def adoptions(
    found: Mapping[TopicPartition, FoundReplica], topics: Mapping[str, TopicRegistration]
) -> tuple[list[Adoption], list[TopicPartition]]:
    """Sorts unknown partitions by topic; returns those to adopt, and strays to be left alone.

    A stray carries the id of another topic of the same name: its topic was deleted while the folder was away.
    KRaft's own log, `__cluster_metadata`, is no topic at all.
    """
    by_topic: dict[str, Adoption] = {}
    strays = []
    for partition, replica in sorted(found.items()):
        known = topics.get(partition.topic)
        if partition.topic == CLUSTER_METADATA_TOPIC or not is_legal(partition.topic):
            continue
        if known is not None and replica.topic_id not in (None, known.topic_id):
            strays.append(partition)
        elif known is None or partition.partition not in known.assignment:
            adoption = by_topic.setdefault(partition.topic, Adoption(partition.topic, known))
            adoption.found[partition.partition] = replica
    return list(by_topic.values()), strays
