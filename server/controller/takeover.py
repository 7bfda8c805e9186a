"""What a controller finds: topics in the store, and partitions in log directories that the store does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.topic_store import PlannedTopic, TopicStore
from ..metadata.znodes import NO_LEADER, PartitionState, TopicRegistration
from ..runtime.turns import STATES, Pace, next_turn
from .adoption import KEPT, Adoption, FoundReplica, adoptions
from .context import ControllerContext

logger = room_logger("controller")

NAMES_TOLD = 10
"""Of adopted topics, in the log."""


class Takeover:
    """Brings a controller's context up to date, at the start of its term above all; nobody leads anything before."""

    def __init__(self, broker_id: int, term: ControllerTerm, store: TopicStore, context: ControllerContext) -> None:
        self._broker_id = broker_id
        self._term = term
        self._store = store
        self._context = context

    async def read_topics(self, topic_names: Sequence[str] | None = None) -> None:
        """Takes in what the store has, or only these, and writes what it lacks: topic ids, states of partitions.

        What cannot be read is left out, and nothing is written there: a topic is known by its name only, a partition
        without a readable state has no leader, as in Kafka.
        """
        topics, unreadable = await self._store.find_topics(topic_names)
        self._context.unreadable.difference_update(topic_names or ())
        self._context.unreadable |= unreadable
        names = (TopicPartition(topic.name, index) for topic in topics for index in topic.assignment)
        written: dict[TopicPartition, PartitionState | None] = {}
        while some := list(islice(names, STATES)):
            found = await self._store.find_states(some)
            written.update(found.states)
            written.update(dict.fromkeys(found.unreadable))
            await next_turn()
        pace = Pace()
        for topic in topics:
            await self._take_in(topic, written)
            await pace.step(len(topic.assignment))

    async def _take_in(self, topic: TopicRegistration, written: Mapping[TopicPartition, PartitionState | None]) -> None:
        if not topic.topic_id.int:
            # Written by Kafka before 2.8, which knew no ids.
            topic = replace(topic, topic_id=self._store.new_topic_id())
            await self._store.set_topic(topic, self._term)
        names = {index: TopicPartition(topic.name, index) for index in topic.assignment}
        unwritten = {
            index: PartitionState(NO_LEADER, -1, replicas, self._term.epoch)
            for index, replicas in topic.assignment.items()
            if names[index] not in written
        }
        if unwritten:
            await self._store.add_partitions(topic, unwritten, self._term)
        self._context.put_topic(topic)
        for index, name in names.items():
            state = written[name] if name in written else unwritten[index]
            if state is not None:
                self._context.restore_state(name, state)

    async def adopt(
        self, found: Mapping[TopicPartition, FoundReplica], config_of: Callable[[str], Mapping[str, str]]
    ) -> dict[str, Mapping[str, str]]:
        """Registers found partitions that the store does not know; returns the settings of new topics.

        `config_of` gives those that a topic of this name must have. Others are `KEPT`.
        """
        unknown = {one: replica for one, replica in found.items() if one.topic not in self._context.unreadable}
        adopted = adoptions(unknown, {topic.name: topic for topic in self._context.topics})
        new = {adoption.name: config_of(adoption.name) or KEPT for adoption in adopted if adoption.known is None}
        if adopted:
            logger.info("adopting partitions of %d topics found in the log directories", len(adopted))
        kept = [name for name, config in new.items() if config is KEPT]
        if kept:
            logger.warning(
                "adopting %d topics found in the log directories (%s) with %s: folders do not hold their settings",
                len(kept),
                ", ".join(kept[:NAMES_TOLD]) + ("" if len(kept) <= NAMES_TOLD else ", …"),
                ", ".join(f"{name}={value}" for name, value in KEPT.items()),
            )
        for adoption in adopted:
            await self._adopt_topic(adoption, new.get(adoption.name, {}))
        return new

    async def _adopt_topic(self, adoption: Adoption, config: Mapping[str, str]) -> None:
        replicas = (self._broker_id,)
        added = dict.fromkeys(adoption.missing_partitions, replicas)
        states = {
            # Offline in the epoch last used: the election that follows goes one above it.
            index: PartitionState(NO_LEADER, adoption.leader_epoch(index), replicas, self._term.epoch)
            for index in added
        }
        if adoption.known is None:
            topic_id = adoption.topic_id or self._store.new_topic_id()
            topic = TopicRegistration(adoption.name, topic_id, added)
            await self._store.create_topics([PlannedTopic(topic, states, config)], self._term)
        else:
            topic = replace(adoption.known, assignment={**adoption.known.assignment, **added})
            await self._store.add_partitions(topic, states, self._term)
        self._context.put_topic(topic)
        for index, state in states.items():
            self._context.restore_state(TopicPartition(topic.name, index), state)
