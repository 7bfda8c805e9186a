"""Makes topics and partitions that may be made: written first, then led, then shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import StoreUnavailableError
from ..metadata.topic_names import collision_key
from ..metadata.topic_store import PlannedTopic, TopicStore
from ..metadata.znodes import PartitionState, TopicRegistration
from ..quotas.charge import Pay
from ..runtime.turns import WISHES, Pace
from .context import ControllerContext
from .partition_state_machine import PartitionStateMachine
from .topic_rules import PartitionsCreation, TopicConfigs, TopicCreation, TopicPlan, TopicRules

logger = room_logger("controller")


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as it was, or with validate_only would be, created."""

    name: str
    topic_id: UUID
    num_partitions: int
    replication_factor: int
    config: Mapping[str, str]


class TopicMaker:
    """Called for one change after the other."""

    def __init__(
        self,
        context: ControllerContext,
        store: TopicStore,
        partitions: PartitionStateMachine,
        *,
        metadata: MetadataCache,
        rules: TopicRules,
        topic_configs: TopicConfigs,
    ) -> None:
        self._context = context
        self._store = store
        self._partitions = partitions
        self._metadata = metadata
        self._rules = rules
        self._topic_configs = topic_configs

    async def create(
        self, wishes: Sequence[TopicCreation], term: ControllerTerm, *, validate_only: bool, pay: Pay
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Creates the topics that may be created and are paid for. Raises KafkaError POLICY_VIOLATION."""
        results: dict[str, CreatedTopic | KafkaError] = {}
        plans: list[TopicPlan] = []
        taken: dict[str, str] = {}
        self._rules.check_total(wishes)
        pace = Pace(WISHES)
        for wish in wishes:
            try:
                self._check_free(wish.name, taken)
                plan = self._rules.plan_topic(wish, self._context.racks())
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
        if self._context.topic(name) is not None or name in self._context.unreadable:
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
        states = {index: self._first_state(replicas, term) for index, replicas in plan.assignment.items()}
        registration = TopicRegistration(plan.name, self._store.new_topic_id(), plan.assignment)
        return PlannedTopic(registration, states, plan.config)

    def _first_state(self, replicas: tuple[int, ...], term: ControllerTerm) -> PartitionState:
        live = tuple(broker for broker in replicas if broker in self._context.live_brokers)
        run = self._context.broker_epoch(live[0])
        return PartitionState(live[0], 0, live, term.epoch, leader_broker_epoch=run)

    async def _create(self, new: Mapping[str, PlannedTopic], term: ControllerTerm) -> KafkaError | None:
        """Creates planned topics; returns what hindered all of them."""
        try:
            await self._store.create_topics(new.values(), term)
        except StoreUnavailableError as error:
            logger.error("topics could not be created: %s", error)
            return error.as_answer()
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

    async def extend(self, wish: PartitionsCreation, term: ControllerTerm, pay: Pay | None) -> None:
        """Gives a topic more partitions; without `pay` looks whether it could be done.

        Raises KafkaError, StoreUnavailableError.
        """
        topic = self._context.topic(wish.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wish.name}' does not exist.")
        if wish.name in self._context.doomed:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        added = self._rules.plan_partitions(wish, topic, self._context.racks())
        if pay is None:
            return
        pay(len(added))
        topic = replace(topic, assignment={**topic.assignment, **added})
        states = {index: self._first_state(replicas, term) for index, replicas in added.items()}
        await self._store.add_partitions(topic, states, term)
        self._context.put_topic(topic)
        for index, state in states.items():
            self._context.put_state(TopicPartition(topic.name, index), state)
        partitions = [TopicPartition(topic.name, index) for index in added]
        await self._partitions.announce(partitions, term, is_new=True)
