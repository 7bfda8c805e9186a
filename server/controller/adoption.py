"""Adoption of partitions in the log directories of a single broker that its metadata store does not have.

The log directories may be from another broker, of Barnabas or of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.topic_names import CLUSTER_METADATA_TOPIC, is_legal
from ..metadata.topic_store import PlannedTopic, TopicStore
from ..metadata.znodes import NO_LEADER, LeaderIsrAndControllerEpoch, TopicRegistration
from .controller_context import ControllerContext

if TYPE_CHECKING:
    from ...storage.found_logs import FoundFolder
    from .kraft_adoption import KraftTopic

logger = room_logger("controller")

PARTITIONS_PER_FOLDER = 100
"""A topic has a folder for at least one in this many partitions. A log directory of a cluster with 100 brokers has
about one; a date or a process id at the end of a folder's name looks like a much higher partition."""
ADOPTED_CONFIG: Mapping[str, str] = MappingProxyType(
    {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
)
"""Settings of an adopted topic, whose folders do not contain the original ones: no record is deleted or compacted."""
LOGGED_NAMES = 10
"""Names of adopted topics in the log."""
UNNAMED = "no checkpoint file names it"


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A partition folder of this broker."""

    topic_id: UUID | None = None
    """The id in `partition.metadata`; None without this file."""
    latest_leader_epoch: int = -1
    """The highest epoch in its leader epoch checkpoint; the next election must use a higher one. -1: none."""


@dataclass(slots=True)
class Adoption:
    """A topic with at least one partition that the store does not have."""

    name: str
    known: TopicRegistration | None
    found: dict[int, FoundReplica] = field(default_factory=dict)
    num_partitions: int = 0
    """The number of partitions in the metadata of a KRaft quorum; 0 without any."""

    @property
    def topic_id(self) -> UUID | None:
        """The topic's id, if any folder has one. If folders disagree, the lowest partition decides."""
        if self.known is not None:
            return self.known.topic_id
        return next((self.found[index].topic_id for index in sorted(self.found) if self.found[index].topic_id), None)

    @property
    def missing_partitions(self) -> range:
        """The partitions to register: up to the highest found or known, including partitions without a folder."""
        first = 0 if self.known is None else len(self.known.assignment)
        return range(first, max(max(self.found) + 1, self.num_partitions))

    def leader_epoch(self, partition: int) -> int:
        """Return the last leader epoch of a partition."""
        replica = self.found.get(partition)
        return -1 if replica is None else replica.latest_leader_epoch


def adoptions(found: Mapping[TopicPartition, FoundReplica], topics: Mapping[str, TopicRegistration]) -> list[Adoption]:
    """Group partitions that the store does not have by topic."""
    by_topic: dict[str, Adoption] = {}
    for partition, replica in sorted(found.items()):
        known = topics.get(partition.topic)
        if known is None or partition.partition not in known.assignment:
            adoption = by_topic.setdefault(partition.topic, Adoption(partition.topic, known))
            adoption.found[partition.partition] = replica
    return list(by_topic.values())


async def no_kraft_topics(ids: Collection[UUID]) -> dict[UUID, KraftTopic]:
    """Return no topics, where no log directory contains the metadata of a KRaft quorum."""
    return {}


async def adopt_partitions(
    found: Mapping[TopicPartition, FoundReplica],
    context: ControllerContext,
    store: TopicStore,
    term: ControllerTerm,
    broker_id: int,
    required_config: Callable[[str], Mapping[str, str]],
    kraft_topics: Callable[[Collection[UUID]], Awaitable[Mapping[UUID, KraftTopic]]],
) -> dict[str, Mapping[str, str]]:
    """Register found partitions that the store does not have; return the settings of new topics.

    `required_config` returns the settings that a topic of this name must have. `kraft_topics` returns the topics with
    these ids that the metadata of a KRaft quorum contain, with their settings. Other topics get `ADOPTED_CONFIG`.
    """
    unknown = {one: replica for one, replica in found.items() if one.topic not in context.unreadable}
    adopted = adoptions(unknown, {topic.name: topic for topic in context.topics})
    ids = [adoption.topic_id for adoption in adopted if adoption.known is None]
    in_quorum = await kraft_topics([one for one in ids if one is not None]) if adopted else {}
    new: dict[str, Mapping[str, str]] = {}
    for adoption in adopted:
        if adoption.known is None:
            topic_id = adoption.topic_id
            kraft_topic = None if topic_id is None else in_quorum.get(topic_id)
            required = required_config(adoption.name)
            if kraft_topic is not None and kraft_topic.name == adoption.name:
                adoption.num_partitions = kraft_topic.num_partitions
                new[adoption.name] = {**kraft_topic.config, **required}
            else:
                new[adoption.name] = required or ADOPTED_CONFIG
    if adopted:
        logger.info("adopting partitions of %d topics found in the log directories", len(adopted))
    without_config = [name for name, config in new.items() if config is ADOPTED_CONFIG]
    if without_config:
        logger.warning(
            "adopting %d topics found in the log directories (%s) with %s: their original settings are not adopted",
            len(without_config),
            ", ".join(without_config[:LOGGED_NAMES]) + ("" if len(without_config) <= LOGGED_NAMES else ", …"),
            ", ".join(f"{name}={value}" for name, value in ADOPTED_CONFIG.items()),
        )
    for adoption in adopted:
        replicas = (broker_id,)
        added = dict.fromkeys(adoption.missing_partitions, replicas)
        states = {
            # Offline in the last leader epoch: the election that follows uses the next one.
            index: LeaderIsrAndControllerEpoch(NO_LEADER, adoption.leader_epoch(index), replicas, term.epoch)
            for index in added
        }
        if adoption.known is None:
            topic_id = adoption.topic_id or store.new_topic_id()
            topic = TopicRegistration(adoption.name, topic_id, added)
            await store.create_topics([PlannedTopic(topic, states, new[adoption.name])], term)
        else:
            topic = replace(adoption.known, assignment={**adoption.known.assignment, **added})
            await store.add_partitions(topic, states, term)
        context.put_topic(topic)
        for index, state in states.items():
            context.restore_leadership_info(TopicPartition(topic.name, index), state)
    return new


def strays(
    folders: Mapping[str, FoundFolder], topics: Mapping[str, TopicRegistration], unreadable: Collection[str] = ()
) -> dict[str, str]:
    """Return the folders, by path, that are not partitions of this cluster and must not be adopted, with the reason.

    Kafka renames such folders to `-stray` and deletes unknown ones after a kill. Barnabas keeps them: they may
    be an operator's copies (`orders-20240101`, `backup-7`) or KRaft's own log. Folders of topics that are `unreadable`
    in the store are not strays, since the nodes may be repaired.

    A broker names each of its partitions in checkpoint files, within seconds of its creation; a copied folder is in no
    checkpoint file. Therefore named folders are adopted. An unnamed folder is adopted only if Kafka may have created it
    just before a kill: the store has no topic yet, the folder has a topic id, and no partition before it is missing. If
    no folder is named, no broker has used the log directory, and a program has written the logs: then folders need no
    topic id.
    """
    names = {topic.topic_id: name for name, topic in topics.items() if topic.topic_id.int}
    found: dict[str, str] = {}
    unknown: dict[str, dict[str, FoundFolder]] = {}
    # Named folders first: if two topics have the same id, the folder with a name in a checkpoint file is a real topic.
    for path, folder in sorted(folders.items(), key=lambda item: (not item[1].is_named, item[1].topic_partition)):
        name, index = folder.topic_partition
        known = topics.get(name)
        if name == CLUSTER_METADATA_TOPIC or not is_legal(name):
            found[path] = f"{name} is not a valid topic name"
        elif folder.topic_id is not None and names.setdefault(folder.topic_id, name) != name:
            found[path] = f"its topic id is that of {names[folder.topic_id]}"
        elif known is not None and known.topic_id.int and folder.topic_id not in (None, known.topic_id):
            found[path] = f"its topic id is not that of {name}"
        elif name not in unreadable and (known is None or index not in known.assignment):
            unknown.setdefault(name, {})[path] = folder
    has_no_topics = not topics and not unreadable
    has_no_names = not any(folder.is_named for folder in folders.values())
    for name, its_folders in unknown.items():
        known = topics.get(name)
        in_order = dict(sorted(its_folders.items(), key=lambda item: item[1].topic_partition))
        unproven = _unproven(in_order, has_no_topics=has_no_topics, needs_id=not has_no_names)
        proven = {path: folder for path, folder in in_order.items() if path not in unproven}
        found |= unproven | _implausible(proven, 0 if known is None else len(known.assignment))
    return found


def _unproven(folders: Mapping[str, FoundFolder], *, has_no_topics: bool, needs_id: bool) -> dict[str, str]:
    """Return the unknown folders of one topic, given in the order of their indexes, that may be copies."""
    found: dict[str, str] = {}
    topic_id, complete = None, 0
    for path, folder in folders.items():
        index = folder.topic_partition.partition
        if not folder.is_named:
            if not has_no_topics:
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
    """Return the unknown folders of one topic, given in the order of their indexes, with implausible indexes."""
    found: dict[str, str] = {}
    for count, (path, folder) in reversed(list(enumerate(folders.items(), start=known + 1))):
        if folder.topic_partition.partition < count * PARTITIONS_PER_FOLDER:
            break
        found[path] = f"{folder.topic_partition} has a very high index: only {count} lower partitions exist"
    return found
