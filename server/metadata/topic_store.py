"""Which topics there are, and the states of their partitions, in the metadata tree.

Every write carries a check of `/controller_epoch`: a deposed controller cannot write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ...protocol.uuid_text import new_uuid
from . import znodes
from .cluster_store import ControllerTerm
from .config_store import config_write
from .metadata_store import (
    MOST_MULTI_BYTES,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NoNodeError,
    Operation,
    OperationResult,
    SetData,
    Stat,
    Watch,
    size_of,
)
from .znodes import PartitionState, TopicRegistration, UnreadableNodeError

logger = room_logger("metadata")


class FoundTopics(NamedTuple):
    """What a reading of topics has found."""

    topics: list[TopicRegistration]
    unreadable: frozenset[str]
    """Topics that are there, and of which nobody can tell what they are: nothing may be written in their place."""

    def by_name(self) -> dict[str, TopicRegistration]:
        """The topics that could be read."""
        return {topic.name: topic for topic in self.topics}


class FoundStates(NamedTuple):
    """What a reading of the states of partitions has found."""

    states: dict[TopicPartition, PartitionState]
    """Of those that ever had a leader."""
    unreadable: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic to be written, complete with its first partition states and its configuration."""

    registration: TopicRegistration
    states: Mapping[int, PartitionState]
    config: Mapping[str, str]


class TopicStore:
    """Topics in Kafka's layout (see `znodes`). Only a controller writes them.

    A node that cannot be read is named in the log, costs what it belongs to and nothing else, and stays as it is.
    """

    def __init__(self, store: MetadataStore, *, token_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._token_bytes = token_bytes
        self._told: dict[str, int] = {}

    def new_topic_id(self) -> UUID:
        return new_uuid(self._token_bytes)

    async def names(self, watch: Watch | None = None) -> list[str]:
        """Returns the names of all topics; `watch` hears of the next that comes or goes."""
        return await self._store.children(znodes.TOPICS, watch)

    async def topics(self, names: Sequence[str] | None = None) -> list[TopicRegistration]:
        """Returns all topics that can be read, or those of these that there are."""
        return (await self.find_topics(names)).topics

    async def find_topics(self, names: Sequence[str] | None = None) -> FoundTopics:
        """Reads all topics, or these."""
        if names is None:
            names = await self.names()
        paths = [znodes.topic_path(name) for name in names]
        topics, unreadable = [], set()
        for name, path, node in zip(names, paths, await self._store.get_many(paths), strict=True):
            if node is not None:
                try:
                    topics.append(znodes.decode_topic(name, node[0]))
                except UnreadableNodeError as error:
                    self._tell_of_unreadable(path, node[1], error)
                    unreadable.add(name)
        return FoundTopics(topics, frozenset(unreadable))

    async def topic(self, name: str) -> TopicRegistration | None:
        return next(iter(await self.topics([name])), None)

    async def partition_states(self, topic: TopicRegistration) -> dict[int, PartitionState]:
        """Returns the states of those partitions of a topic that ever had a leader."""
        states = await self.states_of([TopicPartition(topic.name, partition) for partition in topic.assignment])
        return {partition.partition: state for partition, state in states.items()}

    async def states_of(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """Returns the states, as they are now, of those of the partitions that ever had a leader."""
        return (await self.find_states(partitions)).states

    async def find_states(self, partitions: Sequence[TopicPartition]) -> FoundStates:
        """Reads the states of these partitions, as they are now."""
        paths = [znodes.state_path(*partition) for partition in partitions]
        states, unreadable = {}, set()
        for partition, path, node in zip(partitions, paths, await self._store.get_many(paths), strict=True):
            if node is not None:
                try:
                    states[partition] = znodes.decode_state(node[0], node[1].version, node[1].mzxid)
                except UnreadableNodeError as error:
                    self._tell_of_unreadable(path, node[1], error)
                    unreadable.add(partition)
        return FoundStates(states, frozenset(unreadable))

    def _tell_of_unreadable(self, path: str, stat: Stat, error: UnreadableNodeError) -> None:
        """Once of each thing that somebody has written there, however often it is read."""
        if self._told.get(path) != stat.mzxid:
            self._told[path] = stat.mzxid
            logger.error("%s cannot be read, what it belongs to is left alone until it can: %s", path, error)

    async def create_topics(self, topics: Iterable[PlannedTopic], term: ControllerTerm) -> None:
        """Writes whole topics, all or none unless they are more than a multi holds.

        Raises NodeExistsError if one exists, KafkaError NOT_CONTROLLER.
        """
        operations: list[Operation] = []
        for topic in topics:
            name = topic.registration.name
            operations.append(await config_write(self._store, "topics", name, topic.config))
            operations.append(Create(znodes.topic_path(name), znodes.encode_topic(topic.registration)))
            operations.append(Create(znodes.partitions_path(name)))
            operations += _new_partitions(name, topic.states)
        await self._write(operations, term)

    async def add_partitions(
        self, topic: TopicRegistration, states: Mapping[int, PartitionState], term: ControllerTerm
    ) -> None:
        """Writes a topic's larger assignment together with the states of its new partitions."""
        operations: list[Operation] = [SetData(znodes.topic_path(topic.name), znodes.encode_topic(topic))]
        try:
            present = await self._store.children(znodes.partitions_path(topic.name))
        except NoNodeError:
            present = []
            operations.append(Create(znodes.partitions_path(topic.name)))
        # Whoever wrote or removed many, one after the other, may have ended between a partition and its state.
        await self._write(operations + _new_partitions(topic.name, states, set(present)), term)

    async def set_topic(self, topic: TopicRegistration, term: ControllerTerm) -> None:
        """Rewrites a topic's identity and assignment."""
        await self._write([SetData(znodes.topic_path(topic.name), znodes.encode_topic(topic))], term)

    async def set_partition_states(
        self, states: Mapping[TopicPartition, PartitionState], term: ControllerTerm
    ) -> dict[TopicPartition, PartitionState]:
        """Replaces partition states, each only if its partition epoch is still current; returns them as written.

        Raises BadVersionError if a state was changed meanwhile (nothing of its multi is written), KafkaError
        NOT_CONTROLLER.
        """
        writes: list[Operation] = [
            SetData(znodes.state_path(*partition), znodes.encode_state(state), state.partition_epoch)
            for partition, state in states.items()
        ]
        results = await self._write(writes, term)
        return {
            partition: state.with_partition_epoch(stat.version)
            for (partition, state), stat in zip(states.items(), results, strict=True)
            if isinstance(stat, Stat)
        }

    async def mark_for_deletion(self, topics: Iterable[str], term: ControllerTerm) -> None:
        """Asks for topics to be deleted: what was begun is finished, by another controller if need be."""
        marked = set(await self.topics_to_delete())
        marks: list[Operation] = [Create(znodes.deletion_path(name)) for name in topics if name not in marked]
        await self._write(marks, term)

    async def topics_to_delete(self, watch: Watch | None = None) -> list[str]:
        """Returns the topics whose deletion was asked for and is not finished; `watch` hears of the next such wish."""
        return await self._store.children(znodes.DELETE_TOPICS, watch)

    async def remove_marks(self, topics: Iterable[str], term: ControllerTerm) -> None:
        """Takes back that topics are to be deleted."""
        await self._write([Delete(znodes.deletion_path(name)) for name in topics], term)

    async def delete_topics(self, names: Iterable[str], term: ControllerTerm) -> None:
        """Removes all nodes of topics, their configurations and the requests to delete them, together."""
        operations: list[Operation] = []
        for name in names:
            paths = (znodes.topic_path(name), znodes.config_path("topics", name), znodes.deletion_path(name))
            for path in paths:
                operations += await self._tree_removal(path)
        await self._write(operations, term)

    async def _tree_removal(self, path: str) -> list[Operation]:
        try:
            names = await self._store.children(path)
        except NoNodeError:
            return []
        operations: list[Operation] = []
        for name in names:
            operations += await self._tree_removal(f"{path}/{name}")
        return [*operations, Delete(path)]

    async def _write(self, operations: list[Operation], term: ControllerTerm) -> list[OperationResult]:
        """Applies the operations if the term is still the present one.

        What is too large for one multi is written in several, each with that check, in the order given: callers put
        first what may be there without the rest.
        """
        results: list[OperationResult] = []
        for batch in _batches(operations):
            try:
                results += (await self._store.multi([Check(znodes.CONTROLLER_EPOCH, term.fence), *batch]))[1:]
            except BadVersionError as error:
                if error.index == 0:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker has become controller.") from error
                raise
        return results


def _batches(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    batch: list[Operation] = []
    room = MOST_MULTI_BYTES // 2
    for operation in operations:
        size = size_of(operation)
        if batch and size > room:
            yield batch
            batch, room = [], MOST_MULTI_BYTES // 2
        batch.append(operation)
        room -= size
    if batch:
        yield batch


def _new_partitions(topic: str, states: Mapping[int, PartitionState], present: Collection[str] = ()) -> list[Operation]:
    """Writes new partitions with their states; of those `present` the states alone."""
    operations: list[Operation] = []
    for partition, state in states.items():
        if str(partition) not in present:
            operations.append(Create(znodes.partition_path(topic, partition)))
        operations.append(Create(znodes.state_path(topic, partition), znodes.encode_state(state)))
    return operations
