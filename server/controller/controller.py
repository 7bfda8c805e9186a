"""The controller: decides which topics exist and who leads their partitions, and tells the brokers.

One broker is a cluster of one: it elects itself through `/controller`, raises the controller epoch, and takes its own
partitions from Offline to Online by the same elections as in a cluster. Changes are made one after another: a method
holds `_turn` from its first look at the context to the last order. Each change is written to the store first, then
carried out by the replicas, then shown in the metadata cache: what clients see can be served.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..config.broker_config import BrokerConfig
from ..metadata.cluster_store import ClusterStore, ControllerTerm
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import StoreUnavailableError
from ..metadata.topic_names import collision_key
from ..metadata.topic_store import PlannedTopic, TopicStore
from ..metadata.znodes import PartitionState, TopicRegistration
from ..quotas.charge import Pay, for_nothing
from ..runtime.turns import WISHES, Pace
from .adoption import FoundReplica
from .context import ControllerContext
from .partition_state_machine import PartitionStateMachine
from .replica_channel import ReplicaChannel
from .takeover import Takeover
from .topic_rules import PartitionsCreation, TopicConfigs, TopicCreation, TopicPlan, TopicRules

logger = room_logger("controller")

STORE_FAILED = "The metadata store could not be written."


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as it was, or with validate_only would be, created."""

    name: str
    topic_id: UUID
    num_partitions: int
    replication_factor: int
    config: Mapping[str, str]


class Controller:
    """Kafka's KafkaController with its two state machines' duties for partitions."""

    def __init__(
        self,
        *,
        broker_id: int,
        cluster_store: ClusterStore,
        topic_store: TopicStore,
        metadata: MetadataCache,
        channel: ReplicaChannel,
        config: BrokerConfig,
        topic_configs: TopicConfigs,
        chance: random.Random,
    ) -> None:
        self._broker_id = broker_id
        self._cluster = cluster_store
        self._store = topic_store
        self._metadata = metadata
        self._channel = channel
        self._topic_configs = topic_configs
        self._rules = TopicRules(config, topic_configs, chance)
        self._context = ControllerContext()
        self._partitions = PartitionStateMachine(self._context, topic_store, channel, metadata)
        self._term: ControllerTerm | None = None
        self._turn = asyncio.Lock()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._term is not None

    @property
    def controller_epoch(self) -> int:
        """Epoch of this broker's term as controller. Raises KafkaError NOT_CONTROLLER."""
        return self._active_term().epoch

    # Start

    async def start(self, found: Mapping[TopicPartition, FoundReplica] | None = None) -> None:
        """Becomes controller and brings every partition online; the broker must be registered.

        `found` are the partitions in this broker's log directories: those that the store does not know are adopted.
        Raises KafkaError NOT_CONTROLLER if another broker is controller.
        """
        async with self._turn:
            self._term = await self._cluster.claim_controller(self._broker_id)
            if self._term is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker is the controller of this metadata store.")
            brokers = await self._cluster.brokers()
            self._metadata.set_brokers(brokers)
            self._metadata.controller_id = self._broker_id
            self._context.live_brokers = tuple(brokers)
            takeover = Takeover(self._broker_id, self._term, self._store, self._context)
            await takeover.read_topics()
            adopted = await takeover.adopt(found or {}, self._rules.internal_config)
            for name, config in adopted.items():
                self._topic_configs.topic_config_changed(name, config)
            doomed = await self._store.topics_to_delete()
            await self._delete(name for name in doomed if self._context.topic(name) is not None)
            await self._partitions.bring_online(self._context.partitions(), self._active_term())

    # Topics

    async def create_topics(
        self, wishes: Sequence[TopicCreation], *, validate_only: bool = False, pay: Pay = for_nothing
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Creates the topics that may be created and are paid for, each led and ready when this returns.

        Raises KafkaError NOT_CONTROLLER, or POLICY_VIOLATION if all are too many partitions together; what concerns
        one topic is its result.
        """
        async with self._turn:
            term = self._active_term()
            results: dict[str, CreatedTopic | KafkaError] = {}
            plans: list[TopicPlan] = []
            taken: dict[str, str] = {}
            self._rules.check_total(wishes)
            pace = Pace(WISHES)
            for wish in wishes:
                try:
                    self._check_free(wish.name, taken)
                    plan = self._rules.plan_topic(wish, self._context.live_brokers)
                    if not validate_only:
                        pay(len(plan.assignment))
                except KafkaError as error:
                    results[wish.name] = error.as_result()
                else:
                    plans.append(plan)
                    taken[collision_key(plan.name)] = plan.name
                await pace.step()
            new = {plan.name: self._new_topic(plan, term) for plan in plans}
            if not validate_only:
                failure = await self._create(new, term)
                results.update(dict.fromkeys(new, failure) if failure else {})
            for plan in plans:
                registration = new[plan.name].registration
                first = next(iter(plan.assignment.values()))
                created = CreatedTopic(plan.name, registration.topic_id, len(plan.assignment), len(first), plan.config)
                results.setdefault(plan.name, created)
            return results

    def _check_free(self, name: str, taken: Mapping[str, str]) -> None:
        if self._context.topic(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        rival = self._metadata.colliding_topic(name)
        if rival is None:
            other = taken.get(collision_key(name))
            rival = other if other != name else None
        if rival is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {rival}"
            )

    def _new_topic(self, plan: TopicPlan, term: ControllerTerm) -> PlannedTopic:
        states = {}
        for index, replicas in plan.assignment.items():
            live = tuple(broker for broker in replicas if broker in self._context.live_brokers)
            states[index] = PartitionState(live[0], 0, live, term.epoch)
        registration = TopicRegistration(plan.name, self._store.new_topic_id(), plan.assignment)
        return PlannedTopic(registration, states, plan.config)

    async def _create(self, new: Mapping[str, PlannedTopic], term: ControllerTerm) -> KafkaError | None:
        """Creates planned topics; returns what hindered all of them."""
        try:
            await self._store.create_topics(new.values(), term)
        except StoreUnavailableError as error:
            logger.error("topics could not be created: %s", error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, STORE_FAILED)
        partitions = []
        for name, topic in new.items():
            if topic.config:
                self._topic_configs.topic_config_changed(name, topic.config)
            self._context.put_topic(topic.registration)
            for index, state in topic.states.items():
                self._context.put_state(TopicPartition(name, index), state)
            partitions += self._context.partitions_of(name)
        await self._partitions.announce(partitions, term, is_new=True)
        return None

    async def auto_create(self, names: Iterable[str], *, pay: Pay = for_nothing) -> dict[str, KafkaError | None]:
        """Creates topics because somebody asked for them, with the broker's defaults; None where that went well."""
        wishes = [self._rules.auto_creation(name) for name in names]
        results = await self.create_topics(wishes, pay=pay)
        return {name: result if isinstance(result, KafkaError) else None for name, result in results.items()}

    async def create_partitions(
        self, wishes: Sequence[PartitionsCreation], *, validate_only: bool = False, pay: Pay = for_nothing
    ) -> dict[str, KafkaError | None]:
        """Gives topics more partitions, each led and ready when this returns; None where that went well.

        Raises KafkaError NOT_CONTROLLER.
        """
        async with self._turn:
            term = self._active_term()
            results: dict[str, KafkaError | None] = {}
            pace = Pace(WISHES)
            for wish in wishes:
                await pace.step()
                try:
                    await self._extend(wish, term, None if validate_only else pay)
                except KafkaError as error:
                    results[wish.name] = error.as_result()
                except StoreUnavailableError as error:
                    logger.error("partitions of %s could not be created: %s", wish.name, error)
                    results[wish.name] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, STORE_FAILED)
                else:
                    results[wish.name] = None
            return results

    async def _extend(self, wish: PartitionsCreation, term: ControllerTerm, pay: Pay | None) -> None:
        """Without `pay` only looks whether it could be done."""
        topic = self._context.topic(wish.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wish.name}' does not exist.")
        added = self._rules.plan_partitions(wish, topic, self._context.live_brokers)
        if pay is None:
            return
        pay(len(added))
        topic = replace(topic, assignment={**topic.assignment, **added})
        states = {index: PartitionState(replicas[0], 0, replicas, term.epoch) for index, replicas in added.items()}
        await self._store.add_partitions(topic, states, term)
        self._context.put_topic(topic)
        for index, state in states.items():
            self._context.put_state(TopicPartition(topic.name, index), state)
        partitions = [TopicPartition(topic.name, index) for index in added]
        await self._partitions.announce(partitions, term, is_new=True)

    # Deletion

    async def delete_topics(self, names: Iterable[str], *, pay: Pay = for_nothing) -> dict[str, KafkaError | None]:
        """Deletes topics: nothing serves them, their folders are renamed away and the store is clean on return.

        Raises KafkaError NOT_CONTROLLER; what concerns one topic is its result, None where that went well.
        """
        async with self._turn:
            term = self._active_term()
            results: dict[str, KafkaError | None] = {}
            present = []
            pace = Pace(WISHES)
            for name in names:
                await pace.step()
                if self._context.topic(name) is None:
                    text = "This server does not host this topic-partition."
                    results[name] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
                else:
                    try:
                        pay(len(self._context.partitions_of(name)))
                        present.append(name)
                    except KafkaError as error:
                        results[name] = error.as_result()
            try:
                await self._store.mark_for_deletion(present, term)
                results.update(await self._delete(present))
            except StoreUnavailableError as error:
                logger.error("topics could not be deleted: %s", error)
                failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, STORE_FAILED)
                results.update(dict.fromkeys(present, failure))
            return results

    async def _delete(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Carries out deletions that are marked in the store."""
        results: dict[str, KafkaError | None] = {}
        gone = []
        for name in names:
            self._metadata.remove_topics([name])
            partitions = self._context.partitions_of(name)
            for partition in partitions:
                self._context.take_offline(partition)
            if await self._stop_replicas(partitions):
                gone.append(name)
                results[name] = None
            else:
                # The mark in the store stays: the next controller, or the next start, finishes the deletion.
                text = "Not every replica could be deleted; the deletion goes on when its log directory is back."
                results[name] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
        if gone:
            await self._store.delete_topics(gone, self._active_term())
        for name in gone:
            self._context.remove_topic(name)
            self._topic_configs.topic_config_changed(name, None)
        return results

    async def _stop_replicas(self, partitions: Sequence[TopicPartition]) -> bool:
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            for broker in self._context.replicas(partition):
                by_broker.setdefault(broker, []).append(partition)
        if any(len(self._context.live_replicas(p)) < len(self._context.replicas(p)) for p in partitions):
            # What cannot be reached cannot be deleted, and would come back one day.
            return False
        deleted = True
        for broker, its_partitions in by_broker.items():
            answers = await self._channel.stop_replicas(broker, its_partitions, delete=True)
            for partition, error in answers.items():
                if error is not ErrorCode.NONE:
                    logger.error("broker %d could not delete %s: %s", broker, partition, error.name)
                    deleted = False
        return deleted

    # Elections

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, allow_unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects preferred leaders, or with `allow_unclean` any live replica where there is no leader.

        None stands for all partitions; those that need no election are left out of that answer.
        Raises KafkaError NOT_CONTROLLER.
        """
        async with self._turn:
            wanted = self._context.partitions() if partitions is None else partitions
            results = await self._partitions.elect(wanted, self._active_term(), allow_unclean=allow_unclean)
        if partitions is None:
            unneeded = ErrorCode.ELECTION_NOT_NEEDED
            results = {p: error for p, error in results.items() if error is None or error.code is not unneeded}
        return results

    async def replicas_failed(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """A live broker's log directory has failed with these partitions in it: others lead them, or nobody.

        Does nothing if this broker is not the controller.
        """
        async with self._turn:
            if self._term is None:
                return
            present = [partition for partition in partitions if partition in self._context]
            for partition in present:
                self._context.replica_failed(partition, broker_id)
            await self._partitions.bring_online(self._led_by(broker_id, present), self._term)

    async def retry_replicas(self, broker_id: int, lost: Container[TopicPartition]) -> None:
        """Tries again the replicas that a live broker could not make, for want of room, say; not those it has `lost`.

        Does nothing if this broker is not the controller.
        """
        async with self._turn:
            failed = [partition for partition in self._context.failed_replicas(broker_id) if partition not in lost]
            if self._term is None or not failed:
                return
            for partition in failed:
                self._context.replica_returned(partition, broker_id)
            await self._partitions.bring_online(failed, self._term)

    def _led_by(self, broker_id: int, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        states = ((partition, self._context.state(partition)) for partition in partitions)
        return [partition for partition, state in states if state is not None and state.leader == broker_id]

    # Reassignments

    def reassignments(self) -> list[TopicRegistration]:
        """The topics of which partitions are on their way to other brokers."""
        return [topic for topic in self._context.topics if topic.adding_replicas or topic.removing_replicas]

    def check_reassignment(self, partition: TopicPartition, replicas: Sequence[int] | None) -> None:
        """Raises KafkaError unless the partition has exactly these replicas already; None asks to cancel.

        As long as replicas are not copied between brokers, that is the only assignment a partition can be given.
        """
        if partition not in self._context:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The partition {partition} does not exist.")
        if replicas is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being reassigned.")
        if not replicas or len(set(replicas)) != len(replicas):
            reason = f"Replica assignment {list(replicas)} is empty or names a broker twice."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        if tuple(replicas) != self._context.replicas(partition):
            reason = f"Replica assignment {list(replicas)} needs brokers that are not there to take a replica."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

    def _active_term(self) -> ControllerTerm:
        if self._term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
        return self._term
