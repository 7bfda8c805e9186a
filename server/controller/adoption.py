"""Partitions found on disk that the store does not know: what another broker's log directory brings along."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from ...protocol.topic_partition import TopicPartition
from ..metadata.topic_names import CLUSTER_METADATA_TOPIC, is_legal
from ..metadata.znodes import TopicRegistration

if TYPE_CHECKING:
    from ...storage.found_logs import FoundFolder

PARTITIONS_PER_FOLDER = 100
"""A broker has at least one of so many partitions of a topic, or else it is no topic. A cluster of as many brokers may
leave that much behind in one log directory; a date or a process id in a folder's name means more."""
KEPT: Mapping[str, str] = MappingProxyType({"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"})
"""Settings of a topic of which nothing but folders is known, and those hold none: no record goes that was to stay."""
UNNAMED = "no checkpoint file names it"


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


def adoptions(found: Mapping[TopicPartition, FoundReplica], topics: Mapping[str, TopicRegistration]) -> list[Adoption]:
    """Sorts partitions that the store does not know by topic."""
    by_topic: dict[str, Adoption] = {}
    for partition, replica in sorted(found.items()):
        known = topics.get(partition.topic)
        if known is None or partition.partition not in known.assignment:
            adoption = by_topic.setdefault(partition.topic, Adoption(partition.topic, known))
            adoption.found[partition.partition] = replica
    return list(by_topic.values())


def strays(
    folders: Mapping[str, FoundFolder], topics: Mapping[str, TopicRegistration], unreadable: Collection[str] = ()
) -> dict[str, str]:
    """Of folders by path: those that are no partitions of this cluster's topics, nor to be adopted, and why not.

    Kafka names them `-stray`, and deletes what it finds after a kill and no topic knows; here they stay as they are:
    somebody's copies (`orders-20240101`, `backup-7`), KRaft's own log. What there is of topics that are `unreadable` in
    the store is none: they may be mended.

    A broker names each of its partitions in the checkpoint files beside them, within seconds of making it; a folder
    that somebody has put there is named nowhere. So what is named is adopted. What is not may only be what Kafka made
    just before it was killed: where the store knows no topic yet, a folder with a topic id, and none missing before it.
    Where nothing at all is named, no broker has been, and folders are of those who write logs: they need no topic id.
    """
    names = {topic.topic_id: name for name, topic in topics.items() if topic.topic_id.int}
    found: dict[str, str] = {}
    unknown: dict[str, dict[str, FoundFolder]] = {}
    # What is named comes first: of two topics with one id it is the one that is surely a topic.
    for path, folder in sorted(folders.items(), key=lambda item: (not item[1].is_named, item[1].topic_partition)):
        name, index = folder.topic_partition
        known = topics.get(name)
        if name == CLUSTER_METADATA_TOPIC or not is_legal(name):
            found[path] = f"{name} is no topic's name"
        elif folder.topic_id is not None and names.setdefault(folder.topic_id, name) != name:
            found[path] = f"its topic id is that of {names[folder.topic_id]}"
        elif known is not None and known.topic_id.int and folder.topic_id not in (None, known.topic_id):
            found[path] = f"its topic id is not that of {name}"
        elif name not in unreadable and (known is None or index not in known.assignment):
            unknown.setdefault(name, {})[path] = folder
    is_brought_along = not topics and not unreadable
    is_nothing_named = not any(folder.is_named for folder in folders.values())
    for name, its_folders in unknown.items():
        known = topics.get(name)
        in_order = dict(sorted(its_folders.items(), key=lambda item: item[1].topic_partition))
        unproven = _unproven(in_order, is_brought_along=is_brought_along, needs_id=not is_nothing_named)
        proven = {path: folder for path, folder in in_order.items() if path not in unproven}
        found |= unproven | _implausible(proven, 0 if known is None else len(known.assignment))
    return found


def _unproven(folders: Mapping[str, FoundFolder], *, is_brought_along: bool, needs_id: bool) -> dict[str, str]:
    """Of one topic's unknown folders, in the order of their indexes: those that may be somebody's copies."""
    found: dict[str, str] = {}
    topic_id, complete = None, 0
    for path, folder in folders.items():
        index = folder.topic_partition.partition
        if not folder.is_named:
            if not is_brought_along:
                found[path] = UNNAMED
            elif folder.topic_id is None and needs_id:
                found[path] = f"{UNNAMED}, and it has no topic id"
            elif folder.topic_id != topic_id and (topic_id is not None or (complete and not needs_id)):
                found[path] = f"{UNNAMED}, and its topic id is not that of {folder.topic_partition.topic}"
            elif index > complete:
                found[path] = f"{UNNAMED}, and partition {complete} is not here"
        if path not in found:
            topic_id = topic_id or folder.topic_id
            complete += index == complete
    return found


def _implausible(folders: Mapping[str, FoundFolder], known: int) -> dict[str, str]:
    """Of one topic's unknown folders, in the order of their indexes: those too far from what is there."""
    found: dict[str, str] = {}
    for count, (path, folder) in reversed(list(enumerate(folders.items(), start=known + 1))):
        if folder.topic_partition.partition < count * PARTITIONS_PER_FOLDER:
            break
        found[path] = f"{folder.topic_partition} would be one of very many partitions, of which {count} are here"
    return found
