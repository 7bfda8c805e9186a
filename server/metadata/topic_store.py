"""The topics, and the states of their partitions, in the metadata tree.

Every write carries a check of `/controller_epoch`: a deposed controller cannot write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ...common.room_logger import room_logger
from ...common.uuid_text import new_uuid
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..runtime.loop_sharing import next_turn
from . import znodes
from .cluster_store import ControllerTerm
from .config_store import config_write
from .consumer_offset_store import ConsumerOffsetStore
from .metadata_store import (
    MAX_MULTI_BYTES,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    SetData,
    Stat,
    Watch,
    size_of,
)
from .znodes import LeaderIsrAndControllerEpoch, TopicRegistration, UnreadableNodeError

logger = room_logger("metadata")

PARTITION_STATES_PER_READ = 500
"""Partition states that are read together: topic by topic, each read would wait for the store."""

ASKED_TOGETHER = 10
"""Topics whose nodes are read at the same time."""
DELETIONS_PER_WRITE = 500
"""Nodes of deleted topics in one multi: a tree in this process deletes them in one turn of the loop."""
PIECE_BYTES = 1 << 15
"""The size of each multi if the operations do not fit into one: some hundred operations."""


class FoundTopics(NamedTuple):
    """The result of reading topics."""

    topics: list[TopicRegistration]
    unreadable: frozenset[str]
    """Topics whose nodes cannot be read: they must not be overwritten."""

    def by_name(self) -> dict[str, TopicRegistration]:
        """Return the topics that could be read, by name."""
        return {topic.name: topic for topic in self.topics}


class FoundStates(NamedTuple):
    """The result of reading partition states."""

    states: dict[TopicPartition, LeaderIsrAndControllerEpoch]
    """The states of partitions that ever had a leader."""
    unreadable: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic to be written, complete with its first partition states and its configuration."""

    registration: TopicRegistration
    states: Mapping[int, LeaderIsrAndControllerEpoch]
    config: Mapping[str, str]


class TopicStore:
    """Topics in Kafka's layout (see `znodes`). Only a controller writes them.

    A node that cannot be read is logged and remains unchanged; only its own topic or partition is affected.
    """

    def __init__(self, store: MetadataStore, *, token_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._token_bytes = token_bytes
        self._logged: dict[str, int] = {}

    def new_topic_id(self) -> UUID:
        return new_uuid(self._token_bytes)

    async def names(self, watch: Watch | None = None) -> list[str]:
        """Return the names of all topics; `watch` is called when a topic is added or removed."""
        return await self._store.children(znodes.TOPICS, watch)

    async def topics(self, names: Sequence[str] | None = None) -> list[TopicRegistration]:
        """Return all topics that can be read, or the existing ones of these names."""
        return (await self.find_topics(names)).topics

    async def find_topics(self, names: Sequence[str] | None = None) -> FoundTopics:
        """Read all topics, or these."""
        if names is None:
            names = await self.names()
        paths = [znodes.topic_path(name) for name in names]
        topics, unreadable = [], set()
        for name, path, node in zip(names, paths, await self._store.get_many(paths), strict=True):
            if node is not None:
                try:
                    topics.append(znodes.decode_topic(name, node[0]))
                except UnreadableNodeError as error:
                    self._log_unreadable(path, node[1], error)
                    unreadable.add(name)
        return FoundTopics(topics, frozenset(unreadable))

    async def topic(self, name: str) -> TopicRegistration | None:
        return next(iter(await self.topics([name])), None)

    async def partition_states(self, topic: TopicRegistration) -> dict[int, LeaderIsrAndControllerEpoch]:
        """Return the states of a topic's partitions that ever had a leader."""
        states = await self.states_of([TopicPartition(topic.name, partition) for partition in topic.assignment])
        return {partition.partition: state for partition, state in states.items()}

    async def states_of(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
        """Return the present states of the partitions that ever had a leader."""
        return (await self.find_states(partitions)).states

    async def find_states(self, partitions: Sequence[TopicPartition]) -> FoundStates:
        """Read the present states of these partitions."""
        paths = [znodes.state_path(*partition) for partition in partitions]
        states, unreadable = {}, set()
        for partition, path, node in zip(partitions, paths, await self._store.get_many(paths), strict=True):
            if node is not None:
                try:
                    states[partition] = znodes.decode_state(node[0], node[1].version, node[1].mzxid)
                except UnreadableNodeError as error:
                    self._log_unreadable(path, node[1], error)
                    unreadable.add(partition)
        return FoundStates(states, frozenset(unreadable))

    def _log_unreadable(self, path: str, stat: Stat, error: UnreadableNodeError) -> None:
        """Log an unreadable node once for each write of it."""
        if self._logged.get(path) != stat.mzxid:
            self._logged[path] = stat.mzxid
            logger.error("%s cannot be read; its topic or partition is not changed: %s", path, error)

    async def create_topics(self, topics: Iterable[PlannedTopic], term: ControllerTerm) -> None:
        """Write whole topics, all or none unless they exceed the size of a multi.

        Raises NodeExistsError if one exists, KafkaError NOT_CONTROLLER.
        """
        operations: list[Operation] = []
        topics = list(topics)
        # Each reads from the store whether its node exists: concurrently, since one after another would be slow.
        writes = [config_write(self._store, "topics", topic.registration.name, topic.config) for topic in topics]
        for topic, write in zip(topics, await asyncio.gather(*writes), strict=True):
            name = topic.registration.name
            operations.append(write)
            operations.append(Create(znodes.topic_path(name), znodes.encode_topic(topic.registration)))
            operations.append(Create(znodes.partitions_path(name)))
            operations += _new_partitions(name, topic.states)
        await self._write(operations, term)

    async def add_partitions(
        self, topic: TopicRegistration, states: Mapping[int, LeaderIsrAndControllerEpoch], term: ControllerTerm
    ) -> None:
        """Write a topic's larger assignment together with the states of its new partitions."""
        operations: list[Operation] = [SetData(znodes.topic_path(topic.name), znodes.encode_topic(topic))]
        try:
            present = await self._store.children(znodes.partitions_path(topic.name))
        except NoNodeError:
            present = []
            operations.append(Create(znodes.partitions_path(topic.name)))
        # A write in several multis may have been interrupted between a partition and its state.
        await self._write(operations + _new_partitions(topic.name, states, set(present)), term)

    async def set_topic(self, topic: TopicRegistration, term: ControllerTerm) -> None:
        """Replace a topic's identity and assignment."""
        await self._write([SetData(znodes.topic_path(topic.name), znodes.encode_topic(topic))], term)

    async def set_partition_states(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch], term: ControllerTerm
    ) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
        """Replace partition states, each only if its partition epoch is current; return them as written.

        Raises BadVersionError if a state has another partition epoch (nothing of its multi is written), KafkaError
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
        """Request the deletion of topics: this controller or a later one finishes it."""
        marked = set(await self.topics_to_delete())
        marks: list[Operation] = [Create(znodes.deletion_path(name)) for name in topics if name not in marked]
        await self._write(marks, term)

    async def topics_to_delete(self, watch: Watch | None = None) -> list[str]:
        """Return the topics whose deletion is requested and not finished; `watch` is called at the next request."""
        return await self._store.children(znodes.DELETE_TOPICS, watch)

    async def remove_marks(self, topics: Iterable[str], term: ControllerTerm) -> None:
        """Delete the requests to delete topics."""
        await self._write([Delete(znodes.deletion_path(name)) for name in topics], term)

    async def delete_topics(self, names: Iterable[str], term: ControllerTerm) -> None:
        """Delete all nodes of topics, their configurations, and then the requests to delete them.

        The offsets of Kafka 0.8 consumers are deleted first: after a crash in between, the request to delete the topic
        still exists.
        """
        operations: list[Operation] = []
        names = list(names)
        await ConsumerOffsetStore(self._store).delete_topics(names)
        for start in range(0, len(names), ASKED_TOGETHER):
            for found in await asyncio.gather(*map(self._usual_removal, names[start : start + ASKED_TOGETHER])):
                operations += found
            await next_turn()
        try:
            for start in range(0, len(operations), DELETIONS_PER_WRITE):
                await self._write(operations[start : start + DELETIONS_PER_WRITE], term)
        except (NoNodeError, NotEmptyError) as error:
            # Another program has written nodes. Nodes that are deleted already are not read again.
            logger.info("topics have unexpected nodes and are deleted node by node: %r", error)
            for name in names:
                for path in (znodes.topic_path(name), znodes.config_path("topics", name), znodes.deletion_path(name)):
                    await self._write(await self._tree_removal(path), term)

    async def _usual_removal(self, name: str) -> list[Operation]:
        """Return the deletion of the usual nodes of a topic, which takes few reads."""
        operations = await self._partitions_removal(name)
        for path in (znodes.topic_path(name), znodes.config_path("topics", name), znodes.deletion_path(name)):
            with suppress(NoNodeError):
                operations += [Delete(f"{path}/{child}") for child in await self._store.children(path)]
                operations.append(Delete(path))
        return operations

    async def _partitions_removal(self, name: str) -> list[Operation]:
        try:
            indexes = await self._store.children(znodes.partitions_path(name))
        except NoNodeError:
            return []
        operations: list[Operation] = []
        for start in range(0, len(indexes), PARTITION_STATES_PER_READ):
            some = indexes[start : start + PARTITION_STATES_PER_READ]
            folders = [f"{znodes.partitions_path(name)}/{index}" for index in some]
            states = [f"{folder}/state" for folder in folders]
            for folder, state, node in zip(folders, states, await self._store.get_many(states), strict=True):
                operations += [Delete(folder)] if node is None else [Delete(state), Delete(folder)]
            await next_turn()
        return operations

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
        """Apply the operations if the term is still the present one.

        Operations that exceed one multi are written in several, each with that check, in the order given: callers put
        first the nodes that may exist without the rest.
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


def _batches(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Yield all operations together, or in many small multis if they are too large for one.

    A multi on a tree in this process takes a turn of the loop.
    """
    batch: list[Operation] = []
    most = room = MAX_MULTI_BYTES // 2
    sizes = list(map(size_of, operations))
    if sum(sizes) > most:
        most = room = PIECE_BYTES
    for operation, size in zip(operations, sizes, strict=True):
        if batch and size > room:
            yield batch
            batch, room = [], most
        batch.append(operation)
        room -= size
    if batch:
        yield batch


def _new_partitions(
    topic: str, states: Mapping[int, LeaderIsrAndControllerEpoch], present: Collection[str] = ()
) -> list[Operation]:
    """Return the creation of partitions with their states; of `present` partitions only the states."""
    operations: list[Operation] = []
    encoded: dict[int, bytes] = {}  # by identity: new partitions with the same replicas share a state
    for partition, state in states.items():
        data = encoded.get(id(state))
        if data is None:
            data = encoded[id(state)] = znodes.encode_state(state)
        if str(partition) not in present:
            operations.append(Create(znodes.partition_path(topic, partition)))
        operations.append(Create(znodes.state_path(topic, partition), data))
    return operations
