"""Kafka's AdminManager and AdminUtils: validate and create topics and partitions.

A new partition is written to the store first, then LeaderAndIsr is sent to its replicas, then it is published.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from types import MappingProxyType
from typing import TypeAlias
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..config.broker_config import BrokerConfig
from ..config.dynamic_config import DynamicConfig
from ..metadata.cluster_store import ControllerTerm
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import StoreUnavailableError
from ..metadata.topic_names import check_name
from ..metadata.topic_store import PlannedTopic, TopicStore
from ..metadata.znodes import LeaderIsrAndControllerEpoch, TopicRegistration
from ..quotas.request_quota_usage import ControllerMutationQuota
from ..runtime.loop_sharing import CountBudget, next_turn
from .controller_context import ControllerContext
from .partition_state_machine import PartitionStateMachine

logger = room_logger("controller")

ALL_CORDONED = "All brokers are currently fenced, or have all their log directories cordoned."
BROKER_DEFAULT = -1
MAX_PARTITIONS_PER_REQUEST = 10_000
"""The limit of Apache Kafka's controller."""
PARTITIONS_PER_TURN = 100
"""Partitions that are planned per turn, in 0.3 ms. A larger topic is planned in one turn."""
TOPIC_COST = 10
"""The fixed cost of planning a topic, in partitions."""
SETTINGS_COST = 100
"""The additional cost of validating a topic's own settings, in partitions."""
PARTITIONS_PER_WRITE = 500
"""Partitions in one write to a shared store (ZooKeeper accepts a megabyte at most), and in one LeaderAndIsr request."""
PARTITIONS_PER_CHANGE = 2000
"""New partitions that a standalone broker creates together: their folders share the syncs of the disk. Other changes of
topics wait until these partitions are created."""
PARTITIONS_PER_TRANSACTION = 50
"""New partitions in one transaction: the embedded store applies it in one turn of the loop, in half a millisecond."""
WRITES_TOGETHER = 10
"""Transactions that are sent to the store before the first is stored."""

Assignment: TypeAlias = Mapping[int, tuple[int, ...]]
"""The replicas of each partition, the preferred leader first."""
Racks: TypeAlias = Mapping[int, str | None]
"""The live brokers with their racks."""


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A topic to create (Kafka: CreatableTopic): counts, BROKER_DEFAULT for the broker's, or an assignment."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, tuple[int, ...]]] = ()
    """(partition, replicas) as requested. A duplicate partition is refused."""
    config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionsCreation:
    """A topic to extend to `total` partitions; `assignments` may place the additional ones."""

    name: str
    total: int
    assignments: Sequence[tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A valid topic with its assignment."""

    name: str
    assignment: Assignment
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as it was, or with validate_only would be, created."""

    name: str
    topic_id: UUID
    num_partitions: int
    replication_factor: int
    config: Mapping[str, str]


NOTHING_CREATED: Mapping[str, CreatedTopic | KafkaError] = MappingProxyType({})


class AdminManager:
    """Kafka's AdminManager. `KafkaController` owns it and makes one change after another.

    Its checks and error codes are Kafka's.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: TopicStore,
        partitions: PartitionStateMachine,
        *,
        metadata: MetadataCache,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        chance: random.Random,
        partitions_per_change: int,
    ) -> None:
        """`partitions_per_change` is the number of partitions that are created together."""
        self._partitions_per_change = partitions_per_change
        self._context = context
        self._store = store
        self._partitions = partitions
        self._metadata = metadata
        self._config = config
        self._dynamic_config = dynamic_config
        self._chance = chance

    # -- topics ----------------------------------------------------------------------------------------------------

    def check_total_partitions(self, creations: Sequence[TopicCreation]) -> None:
        """Raise KafkaError POLICY_VIOLATION if topics have more partitions together than one request may create."""
        check_partition_count(sum(map(self.partition_count, creations)))

    def portions(self, creations: Sequence[TopicCreation]) -> Iterator[list[TopicCreation]]:
        """Split topics into portions that are created together, or one larger topic."""
        portion: list[TopicCreation] = []
        room = self._partitions_per_change
        for creation in creations:
            count = self.partition_count(creation)
            if portion and count > room:
                yield portion
                portion, room = [], self._partitions_per_change
            portion.append(creation)
            room -= count
        if portion:
            yield portion

    def partition_count(self, creation: TopicCreation) -> int:
        """Return the number of partitions of a topic to create."""
        default = self._config.num_partitions
        return len(creation.assignments) or (
            default if creation.num_partitions == BROKER_DEFAULT else max(creation.num_partitions, 0)
        )

    async def create_topics(
        self,
        creations: Sequence[TopicCreation],
        term: ControllerTerm,
        *,
        validate_only: bool,
        mutation_quota: ControllerMutationQuota,
        created: Mapping[str, CreatedTopic | KafkaError] = NOTHING_CREATED,
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create the topics that are valid and within the quota.

        `created` has the results of earlier portions of the request. As in Kafka, the topics of one request do not
        collide with each other.
        """
        results: dict[str, CreatedTopic | KafkaError] = {}
        plans: list[TopicPlan] = []
        new: dict[str, PlannedTopic] = {}
        budget = CountBudget(PARTITIONS_PER_TURN)
        for creation in creations:
            try:
                self._check_free(creation.name, created)
                plan = self._plan_topic(creation)
                if not validate_only:
                    mutation_quota(len(plan.assignment))
            except KafkaError as error:
                results[creation.name] = error.as_result()
            else:
                plans.append(plan)
                new[plan.name] = self._new_topic(plan, term)
            await budget.step(TOPIC_COST + self.partition_count(creation) + (SETTINGS_COST if creation.config else 0))
        if not validate_only:
            results |= await self._create(new, term)
        for plan in plans:
            registration = new[plan.name].registration
            first = next(iter(plan.assignment.values()))
            topic = CreatedTopic(plan.name, registration.topic_id, len(plan.assignment), len(first), plan.config)
            results.setdefault(plan.name, topic)
        return results

    def _check_free(self, name: str, created: Mapping[str, CreatedTopic | KafkaError]) -> None:
        if self._context.topic(name) is not None or name in self._context.unreadable:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        for rival in self._metadata.colliding_topics(name):
            if not isinstance(created.get(rival), CreatedTopic):
                reason = f"Topic '{name}' collides with existing topic: {rival}"
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)

    def _plan_topic(self, creation: TopicCreation) -> TopicPlan:
        """Validate and complete a topic. Raises KafkaError with the reason for the client."""
        check_name(creation.name)
        missing = [name for name, value in creation.config.items() if value is None]
        if missing:
            reason = f"Null value not supported for topic configs: {','.join(missing)}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        assignment = self._requested_assignment(creation) if creation.assignments else self._assign(creation)
        config = {name: value for name, value in creation.config.items() if value is not None}
        self._dynamic_config.check_topic_config(config)
        return TopicPlan(creation.name, assignment, config)

    def _assign(self, creation: TopicCreation) -> Assignment:
        racks = self._context.racks()
        partitions, replicas = creation.num_partitions, creation.replication_factor
        partitions = self._config.num_partitions if partitions == BROKER_DEFAULT else partitions
        replicas = self._config.default_replication_factor if replicas == BROKER_DEFAULT else replicas
        if partitions <= 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        if replicas <= 0:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
        if replicas > len(racks):
            reason = f"Replication factor: {replicas} larger than available brokers: {len(racks)}."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        if self._is_cordoned:
            reason = f"Unable to replicate the partition {replicas} time(s): {ALL_CORDONED}"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        return assign_replicas_to_brokers(racks, range(partitions), replicas, self._chance)

    @property
    def _is_cordoned(self) -> bool:
        """Whether this standalone broker gets no new partitions (KIP-1066).

        A controller of a cluster does not have the settings of the other brokers.
        """
        return not self._config.zookeeper_connect and self._config.are_all_log_dirs_cordoned

    def _check_cordoned(self, assignments: Iterable[Sequence[int]]) -> None:
        """Raise KafkaError INVALID_REPLICA_ASSIGNMENT if requested replicas are on a broker without new partitions."""
        brokers = {broker for replicas in assignments for broker in replicas}
        if brokers and self._is_cordoned:
            broker = min(brokers)
            reason = f"includes broker {broker}, but all its log directories are cordoned."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {reason}")

    def _requested_assignment(self, creation: TopicCreation) -> Assignment:
        if (creation.num_partitions, creation.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            reason = "Both numPartitions or replicationFactor and replicasAssignments were set."
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason} Both cannot be used at the same time.")
        assignment = dict(sorted(creation.assignments))
        if len(assignment) != len(creation.assignments):
            raise _bad_assignment("A partition is assigned more than once.")
        if list(assignment) != list(range(len(assignment))):
            raise _bad_assignment("Partitions should be a consecutive 0-based integer sequence.")
        _check_replica_lists(list(assignment.values()), len(assignment[0]), self._context.live_brokers)
        self._check_cordoned(assignment.values())
        return assignment

    def _new_topic(self, plan: TopicPlan, term: ControllerTerm) -> PlannedTopic:
        registration = TopicRegistration(plan.name, self._store.new_topic_id(), plan.assignment)
        return PlannedTopic(registration, self._first_states(plan.assignment, term), plan.config)

    def _first_states(self, assignment: Assignment, term: ControllerTerm) -> dict[int, LeaderIsrAndControllerEpoch]:
        # Many partitions have the same replicas, and therefore share a state.
        by_replicas = {replicas: self._first_state(replicas, term) for replicas in set(assignment.values())}
        return {index: by_replicas[replicas] for index, replicas in assignment.items()}

    def _first_state(self, replicas: tuple[int, ...], term: ControllerTerm) -> LeaderIsrAndControllerEpoch:
        live = tuple(broker for broker in replicas if broker in self._context.live_brokers)
        leader_broker_epoch = self._context.broker_epoch(live[0])
        return LeaderIsrAndControllerEpoch(live[0], 0, live, term.epoch, leader_broker_epoch=leader_broker_epoch)

    async def _create(self, new: Mapping[str, PlannedTopic], term: ControllerTerm) -> dict[str, KafkaError]:
        """Create topics in several writes; return the errors of the topics that could not be written."""
        partitions: list[TopicPartition] = []
        failures: dict[str, KafkaError] = {}
        portions = _portions(new)
        while some := list(islice(portions, WRITES_TOGETHER)):
            for portion, error in zip(some, await self._write(some, term), strict=True):
                if isinstance(error, StoreUnavailableError):
                    logger.error("topics could not be created: %s", error)
                    failures |= dict.fromkeys(portion, error.as_answer())
                elif error is not None:
                    raise error
                else:
                    partitions += self._put(portion)
                await next_turn()
        await self._partitions.send_and_publish(partitions, term, is_new=True)
        return failures

    async def _write(
        self, portions: Sequence[Mapping[str, PlannedTopic]], term: ControllerTerm
    ) -> list[BaseException | None]:
        """Write portions, each in a transaction, and return an error or None for each.

        They share a sync of the embedded store. Each is prepared in a turn of the loop.
        """
        writes: list[asyncio.Task[None]] = []
        for portion in portions:
            writes.append(asyncio.get_running_loop().create_task(self._store.create_topics(portion.values(), term)))
            await next_turn()
        return list(await asyncio.gather(*writes, return_exceptions=True))

    def _put(self, new: Mapping[str, PlannedTopic]) -> list[TopicPartition]:
        """Add topics that were written to the context; return their partitions."""
        partitions: list[TopicPartition] = []
        for name, topic in new.items():
            if topic.config:
                self._dynamic_config.topic_config_changed(name, topic.config)
            self._context.put_topic(topic.registration)
            for index, state in topic.states.items():
                self._context.put_leadership_info(TopicPartition(name, index), state)
            partitions += self._context.partitions_of(name)
        return partitions

    # -- partitions ------------------------------------------------------------------------------------------------

    async def create_partitions(
        self, creation: PartitionsCreation, term: ControllerTerm, mutation_quota: ControllerMutationQuota | None
    ) -> None:
        """Add partitions to a topic, or validate without a quota. Raises KafkaError, StoreUnavailableError."""
        topic = self._context.topic(creation.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{creation.name}' does not exist.")
        if creation.name in self._context.topics_to_be_deleted:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        added = self._plan_partitions(creation, topic)
        if mutation_quota is None:
            return
        mutation_quota(len(added))
        topic = replace(topic, assignment={**topic.assignment, **added})
        states = self._first_states(added, term)
        await self._store.add_partitions(topic, states, term)
        self._context.put_topic(topic)
        for index, state in states.items():
            self._context.put_leadership_info(TopicPartition(topic.name, index), state)
        partitions = [TopicPartition(topic.name, index) for index in added]
        await self._partitions.send_and_publish(partitions, term, is_new=True)

    def _plan_partitions(self, creation: PartitionsCreation, topic: TopicRegistration) -> Assignment:
        """Place the additional partitions of a topic. Raises KafkaError with the reason for the client."""
        racks, present = self._context.racks(), len(topic.assignment)
        if topic.adding_replicas or topic.removing_replicas:
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"The topic '{creation.name}' is being reassigned.")
        if creation.total == present:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
        if creation.total < present:
            reason = f"Topic currently has {present} partitions, which is higher than the requested {creation.total}."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, reason)
        added = range(present, creation.total)
        check_partition_count(len(added))
        first = next(iter(topic.assignment.values()))
        if creation.assignments is None:
            if len(first) > len(racks):
                reason = f"Replication factor: {len(first)} larger than available brokers: {len(racks)}."
                raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
            if self._is_cordoned:
                raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, ALL_CORDONED)
            return assign_replicas_to_brokers(racks, added, len(first), self._chance, first[0])
        if len(creation.assignments) != len(added):
            given = len(creation.assignments)
            reason = f"Increasing the number of partitions by {len(added)} but {given} assignments provided."
            raise _bad_assignment(reason)
        _check_replica_lists(creation.assignments, len(first), racks)
        self._check_cordoned(creation.assignments)
        return dict(zip(added, creation.assignments, strict=True))

    # -- automatic creation ----------------------------------------------------------------------------------------


def check_partition_count(count: int) -> None:
    """Raise KafkaError POLICY_VIOLATION for more partitions than one request may create."""
    if count > MAX_PARTITIONS_PER_REQUEST:
        reason = f"Excessively large number of partitions per request: {count}."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, reason)


def _check_replica_lists(
    replica_lists: Sequence[tuple[int, ...]], replication_factor: int, live_brokers: Collection[int]
) -> None:
    for replicas in replica_lists:
        if not replicas:
            raise _bad_assignment("The manual partition assignment includes an empty replica list.")
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(f"Duplicate brokers not allowed in replica assignment: {_listed(replicas)}.")
        if len(replicas) != replication_factor:
            raise _bad_assignment("All partitions should have the same number of replicas.")
        unknown = [broker for broker in replicas if broker not in live_brokers]
        if unknown:
            reason = f"Unknown broker(s) in replica assignment: {_listed(unknown)}."
            raise _bad_assignment(reason)


def _bad_assignment(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _portions(new: Mapping[str, PlannedTopic]) -> Iterator[dict[str, PlannedTopic]]:
    """Split topics for several writes, `PARTITIONS_PER_TRANSACTION` partitions or one larger topic in each."""
    portion: dict[str, PlannedTopic] = {}
    room = PARTITIONS_PER_TRANSACTION
    for name, topic in new.items():
        if portion and len(topic.states) > room:
            yield portion
            portion, room = {}, PARTITIONS_PER_TRANSACTION
        portion[name] = topic
        room -= len(topic.states)
    if portion:
        yield portion


def assign_replicas_to_brokers(
    brokers: Racks,
    partitions: range,
    replication_factor: int,
    chance: random.Random,
    first_replica_of_partition_0: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Spread replicas evenly, as Kafka's AdminUtils.assignReplicasToBrokers.

    First replicas are assigned round robin from a random broker, the other replicas at a shift. The shift grows with
    each round, so that the partitions of one leader have their followers on different brokers. If every broker has a
    rack, a partition's replicas are in as many racks as possible (KIP-36). `first_replica_of_partition_0` continues the
    round robin of an existing topic. Requires 1 <= replication_factor <= len(brokers).
    """
    count = len(brokers)
    assert 1 <= replication_factor <= count
    if count == 1:
        return dict.fromkeys(partitions, tuple(brokers))
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    by_rack = len(racks) == count
    order = alternating_racks(racks) if by_rack else list(brokers)
    if first_replica_of_partition_0 is not None and first_replica_of_partition_0 in brokers:
        start = shift = order.index(first_replica_of_partition_0)
    else:
        start, shift = chance.randrange(count), chance.randrange(count)
    assignment = {}
    for partition in partitions:
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        if by_rack:
            assignment[partition] = _in_many_racks(order, racks, first, shift, replication_factor)
        else:
            others = [(first + 1 + (shift + place) % (count - 1)) % count for place in range(replication_factor - 1)]
            assignment[partition] = tuple(order[index] for index in (first, *others))
    return assignment


def alternating_racks(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers in an order that alternates between the racks as far as possible."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(racks.items(), key=lambda item: (item[1], item[0])):
        by_rack.setdefault(rack, []).append(broker)
    return [broker for one_each in zip_longest(*by_rack.values()) for broker in one_each if broker is not None]


def _in_many_racks(
    order: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """Return one partition's replicas on different brokers, a second replica in a rack only when all racks have one."""
    count, rack_count = len(order), len(set(racks.values()))
    chosen = [order[first]]
    step = 0
    while len(chosen) < replication_factor:
        used_racks = {racks[broker] for broker in chosen}
        while True:
            broker = order[_replica_index(first, shift * rack_count, step, count)]
            step += 1
            in_new_rack = racks[broker] not in used_racks or len(used_racks) == rack_count
            if in_new_rack and (broker not in chosen):
                break
        chosen.append(broker)
    return tuple(chosen)


def _replica_index(first: int, shift: int, step: int, count: int) -> int:
    """Return the place of a follower, never the place of the first replica (Kafka: replicaIndex)."""
    return (first + 1 + (shift + step) % (count - 1)) % count
