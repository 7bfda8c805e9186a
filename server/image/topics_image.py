"""Topics and partitions of a KRaft cluster, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ...protocol.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ...protocol.topic_partition import TopicIdPartition
from ..runtime.loop_sharing import CountBudget
from .metadata_error import MetadataError
from .partition_registration import PartitionRegistration

FIRST_WITH_DIRECTORIES = 17
"""metadata.version 3.7-IV2 (KIP-858)."""
FIRST_WITH_ELR = 23
"""metadata.version 4.0-IV1 (KIP-966)."""


class TopicImage(NamedTuple):
    """A topic and its partitions by index."""

    name: str
    id: UUID
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics by id, and their ids by name."""

    by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    ids: Mapping[str, UUID] = field(default_factory=dict)

    def topic(self, name: str) -> TopicImage | None:
        """Return the topic of a name."""
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def partition(self, topic_id: UUID, partition: int) -> PartitionRegistration | None:
        """Return the state of a partition."""
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition)

    def write(self, metadata_version: int) -> Iterator[tuple[Any, int]]:
        """Yield the records of all topics, with their versions."""
        version = 2 if metadata_version >= FIRST_WITH_ELR else int(metadata_version >= FIRST_WITH_DIRECTORIES)
        for topic in self.by_id.values():
            yield TopicRecord(name=topic.name, topic_id=topic.id), 0
            for index, partition in topic.partitions.items():
                yield partition.to_record(topic.id, index, version), version


@dataclass(slots=True)
class LocalReplicaChanges:
    """The changes of one broker's replicas.

    `leaders` and `followers` have the partitions whose state has changed; `elected_leaders` are the leaders with a new
    leader epoch. `directory_ids` has the replicas that were assigned to a log directory.
    """

    deletes: set[TopicIdPartition] = field(default_factory=set)
    elected_leaders: dict[TopicIdPartition, PartitionRegistration] = field(default_factory=dict)
    leaders: dict[TopicIdPartition, PartitionRegistration] = field(default_factory=dict)
    followers: dict[TopicIdPartition, PartitionRegistration] = field(default_factory=dict)
    directory_ids: dict[TopicIdPartition, UUID] = field(default_factory=dict)


class TopicDelta:
    """The changes of one topic. `image` is the topic before them; a new topic has no partitions before them."""

    __slots__ = ("image", "partition_changes")

    def __init__(self, image: TopicImage) -> None:
        self.image = image
        self.partition_changes: dict[int, PartitionRegistration] = {}

    @property
    def name(self) -> str:
        """Return the name of the topic."""
        return self.image.name

    @property
    def id(self) -> UUID:
        """Return the id of the topic."""
        return self.image.id

    def replay_partition(self, record: PartitionRecord) -> None:
        """Set the state of a partition. Raises MetadataError."""
        self.partition_changes[record.partition_id] = PartitionRegistration.from_record(record)

    def replay_change(self, record: PartitionChangeRecord) -> None:
        """Change a partition. Raises MetadataError for an unknown one."""
        index = record.partition_id
        partition = self.partition_changes.get(index) or self.image.partitions.get(index)
        if partition is None:
            raise MetadataError(f"change of the unknown partition {self.name}-{index}")
        self.partition_changes[index] = partition.merge(record)

    def replay_clear_elr(self) -> None:
        """Clear the ELRs of all partitions that have any."""
        cleared = PartitionChangeRecord(topic_id=self.id, eligible_leader_replicas=[], last_known_elr=[])
        for index, partition in {**self.image.partitions, **self.partition_changes}.items():
            if partition.elr or partition.last_known_elr:
                self.partition_changes[index] = partition.merge(cleared)

    def apply(self) -> TopicImage:
        """Return the topic after the changes."""
        return TopicImage(self.name, self.id, {**self.image.partitions, **self.partition_changes})

    def add_local_change(
        self, index: int, partition: PartitionRegistration, broker_id: int, changes: LocalReplicaChanges
    ) -> None:
        """Add the change of one broker's replica of a changed partition, if it has one."""
        before = self.image.partitions.get(index)
        directory_before = None if before is None else before.directory(broker_id)
        directory = partition.directory(broker_id)
        key = TopicIdPartition(self.id, self.name, index)
        if directory is None:
            if directory_before is not None:
                changes.deletes.add(key)
            return
        if directory != directory_before:
            changes.directory_ids[key] = directory
        # An equal partition epoch means that a record has set the state that the partition already had.
        if before is not None and before.partition_epoch == partition.partition_epoch:
            return
        if partition.leader != broker_id:
            changes.followers[key] = partition
            return
        changes.leaders[key] = partition
        if before is None or before.leader_epoch != partition.leader_epoch:
            changes.elected_leaders[key] = partition


class TopicsDelta:
    """The changes of topics. `image` has the topics before them."""

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self.changed: dict[UUID, TopicDelta] = {}
        """New and changed topics."""
        self.created: dict[str, UUID] = {}
        """Ids of new topics by name."""
        self.deleted: dict[UUID, TopicImage] = {}
        """Topics of `image` that were deleted."""

    def replay_topic(self, record: TopicRecord) -> None:
        """Create a topic."""
        self._create(record.name, record.topic_id)

    def _create(self, name: str, topic_id: UUID) -> TopicDelta:
        if topic_id in self.image.by_id:
            raise MetadataError(
                f"the topic {name} is created with the id of the topic {self.image.by_id[topic_id].name}"
            )
        self.created[name] = topic_id
        self.changed[topic_id] = delta = TopicDelta(TopicImage(name, topic_id, {}))
        return delta

    def replay_partition(self, record: PartitionRecord) -> None:
        """Set the state of a partition. Raises MetadataError for an unknown topic."""
        self._topic(record.topic_id).replay_partition(record)

    def replay_change(self, record: PartitionChangeRecord) -> None:
        """Change a partition. Raises MetadataError for an unknown one."""
        self._topic(record.topic_id).replay_change(record)

    def replay_remove(self, record: RemoveTopicRecord) -> str:
        """Delete a topic and return its name. Raises MetadataError for an unknown one."""
        name = self._topic(record.topic_id).name
        del self.changed[record.topic_id]
        if self.created.get(name) == record.topic_id:
            del self.created[name]
        if record.topic_id in self.image.by_id:
            self.deleted[record.topic_id] = self.image.by_id[record.topic_id]
        return name

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the ELRs of one topic, or of all topics. Raises MetadataError for an unknown one."""
        if not record.topic_name:
            for topic_id in {**self.image.by_id, **self.changed}:
                if topic_id not in self.deleted:
                    self._clear_elr(topic_id)
            return
        named = self.created.get(record.topic_name) or self.image.ids.get(record.topic_name)
        if named is None:
            raise MetadataError(f"the ELRs of the unknown topic {record.topic_name} are cleared")
        self._clear_elr(named)

    def _clear_elr(self, topic_id: UUID) -> None:
        was_changed = topic_id in self.changed
        delta = self._topic(topic_id)
        delta.replay_clear_elr()
        if not was_changed and not delta.partition_changes:
            del self.changed[topic_id]

    def _topic(self, topic_id: UUID) -> TopicDelta:
        delta = self.changed.get(topic_id)
        if delta is None:
            topic = None if topic_id in self.deleted else self.image.by_id.get(topic_id)
            if topic is None:
                raise MetadataError(f"record of a topic with the unknown id {topic_id}")
            delta = self.changed[topic_id] = TopicDelta(topic)
        return delta

    async def apply(self, budget: CountBudget) -> TopicsImage:
        """Return the topics after the changes. Only changed topics are copied, once per delta."""
        by_id, ids = dict(self.image.by_id), self.image.ids
        if self.deleted or self.created:
            ids = dict(ids)
            # First the deleted topics, whose names new topics may have.
            for topic in self.deleted.values():
                del by_id[topic.id], ids[topic.name]
                await budget.step()
            ids.update(self.created)
        for topic_id, delta in self.changed.items():
            by_id[topic_id] = delta.apply()
            await budget.step()
        return TopicsImage(by_id, ids)

    @classmethod
    async def between(cls, before: TopicsImage, after: TopicsImage, budget: CountBudget) -> TopicsDelta | None:
        """Return the changes that make `after` of `before`; None without any. Raises MetadataError."""
        delta = cls(before)
        for topic_id, topic in before.by_id.items():
            if topic_id not in after.by_id:
                delta.deleted[topic_id] = topic
            await budget.step()
        for topic_id, topic in after.by_id.items():
            known = before.by_id.get(topic_id)
            if known is topic:
                continue
            changed = delta._create(topic.name, topic_id) if known is None else TopicDelta(known)
            for index, partition in topic.partitions.items():
                if changed.image.partitions.get(index) != partition:
                    changed.partition_changes[index] = partition
                await budget.step()
            if not changed.image.partitions.keys() <= topic.partitions.keys():
                raise MetadataError(f"partitions of the topic {topic.name} are missing")
            if changed.partition_changes:
                delta.changed[topic_id] = changed
            await budget.step()
        return delta if delta.changed or delta.deleted else None

    async def local_changes(self, broker_id: int) -> LocalReplicaChanges:
        """Return the changes of one broker's replicas. The loop serves other requests in between."""
        changes, budget = LocalReplicaChanges(), CountBudget()
        for topic in self.deleted.values():
            for index, partition in topic.partitions.items():
                if broker_id in partition.replicas:
                    changes.deletes.add(TopicIdPartition(topic.id, topic.name, index))
                await budget.step()
        for delta in self.changed.values():
            for index, partition in delta.partition_changes.items():
                delta.add_local_change(index, partition, broker_id, changes)
                await budget.step()
        return changes
