"""What may be created: checks a wish for a topic or for more partitions and completes it to a plan."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ..config.broker_config import BrokerConfig
from ..metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, check_name
from ..metadata.znodes import TopicRegistration
from .placement import Racks, assign_replicas

BROKER_DEFAULT = -1
MAX_PARTITIONS_PER_REQUEST = 10_000
"""As many as a controller of Apache Kafka creates in one go."""

Assignment = Mapping[int, tuple[int, ...]]


class TopicConfigs(Protocol):
    """The part of the dynamic configuration that topics coming and going concern."""

    def check_topic_config(self, config: Mapping[str, str]) -> None:
        """Raises KafkaError INVALID_CONFIG unless a topic may have these settings."""
        ...

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The settings that a topic has of its own."""
        ...

    def topic_config_changed(self, topic: str, config: Mapping[str, str] | None) -> None:
        """A topic has these settings of its own from now on; None: the topic is gone."""
        ...


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A wish for a topic. Either counts, BROKER_DEFAULT for the broker's, or an assignment of every partition."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, tuple[int, ...]]] = ()
    """(partition, replicas) as they were sent: a partition may be given twice, which is refused."""
    config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionsCreation:
    """A wish for a topic to have `total` partitions; `assignments` may place the additional ones."""

    name: str
    total: int
    assignments: Sequence[tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that may be created as it stands."""

    name: str
    assignment: Assignment
    config: Mapping[str, str]


class TopicRules:
    """Kafka's checks with Kafka's error codes, against the brokers that are alive."""

    def __init__(self, config: BrokerConfig, topic_configs: TopicConfigs, chance: random.Random) -> None:
        self._config = config
        self._topic_configs = topic_configs
        self._chance = chance

    def check_total(self, wishes: Sequence[TopicCreation]) -> None:
        """Raises KafkaError POLICY_VIOLATION if topics have more partitions together than one request may create."""
        default = self._config.num_partitions
        counts = [
            len(wish.assignments) or (default if wish.num_partitions == BROKER_DEFAULT else max(wish.num_partitions, 0))
            for wish in wishes
        ]
        check_partition_count(sum(counts))

    def plan_topic(self, wish: TopicCreation, live_brokers: Racks) -> TopicPlan:
        """Completes a wish for a topic. Raises KafkaError, with the reason for the client."""
        check_name(wish.name)
        missing = [name for name, value in wish.config.items() if value is None]
        if missing:
            reason = f"Null value not supported for topic configs: {','.join(missing)}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        assignment = self._given(wish, live_brokers) if wish.assignments else self._placed(wish, live_brokers)
        config = {name: value for name, value in wish.config.items() if value is not None}
        self._topic_configs.check_topic_config(config)
        return TopicPlan(wish.name, assignment, config)

    def _placed(self, wish: TopicCreation, live_brokers: Racks) -> Assignment:
        partitions, replicas = wish.num_partitions, wish.replication_factor
        partitions = self._config.num_partitions if partitions == BROKER_DEFAULT else partitions
        replicas = self._config.default_replication_factor if replicas == BROKER_DEFAULT else replicas
        if partitions <= 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        if replicas <= 0:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
        if replicas > len(live_brokers):
            reason = f"Replication factor: {replicas} larger than available brokers: {len(live_brokers)}."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        return assign_replicas(live_brokers, range(partitions), replicas, self._chance)

    def _given(self, wish: TopicCreation, live_brokers: Collection[int]) -> Assignment:
        if (wish.num_partitions, wish.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            reason = "Both numPartitions or replicationFactor and replicasAssignments were set."
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason} Both cannot be used at the same time.")
        assignment = dict(sorted(wish.assignments))
        if len(assignment) != len(wish.assignments):
            raise _bad_assignment("A partition is assigned more than once.")
        if list(assignment) != list(range(len(assignment))):
            raise _bad_assignment("Partitions should be a consecutive 0-based integer sequence.")
        _check_replica_lists(list(assignment.values()), len(assignment[0]), live_brokers)
        return assignment

    def plan_partitions(self, wish: PartitionsCreation, topic: TopicRegistration, live_brokers: Racks) -> Assignment:
        """Places the additional partitions of a topic. Raises KafkaError, with the reason for the client."""
        present = len(topic.assignment)
        if topic.adding_replicas or topic.removing_replicas:
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"The topic '{wish.name}' is being reassigned.")
        if wish.total == present:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
        if wish.total < present:
            reason = f"Topic currently has {present} partitions, which is higher than the requested {wish.total}."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, reason)
        added = range(present, wish.total)
        check_partition_count(len(added))
        first = next(iter(topic.assignment.values()))
        if wish.assignments is None:
            if len(first) > len(live_brokers):
                reason = f"Replication factor: {len(first)} larger than available brokers: {len(live_brokers)}."
                raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
            return assign_replicas(live_brokers, added, len(first), self._chance, first[0])
        if len(wish.assignments) != len(added):
            given = len(wish.assignments)
            reason = f"Increasing the number of partitions by {len(added)} but {given} assignments provided."
            raise _bad_assignment(reason)
        _check_replica_lists(wish.assignments, len(first), live_brokers)
        return dict(zip(added, wish.assignments, strict=True))

    def auto_creation(self, name: str) -> TopicCreation:
        """The wish that stands for a topic which is created because it was asked about."""
        if name == GROUP_METADATA_TOPIC:
            partitions, replicas = (
                self._integer("offsets.topic.num.partitions"),
                self._integer("offsets.topic.replication.factor"),
            )
        elif name == TRANSACTION_STATE_TOPIC:
            partitions = self._integer("transaction.state.log.num.partitions")
            replicas = self._integer("transaction.state.log.replication.factor")
        else:
            partitions, replicas = BROKER_DEFAULT, BROKER_DEFAULT
        return TopicCreation(name, partitions, replicas, config=self.internal_config(name))

    def internal_config(self, name: str) -> dict[str, str]:
        """The settings without which one of Kafka's own topics would lose what it is for; empty for other topics."""
        if name == GROUP_METADATA_TOPIC:
            return {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(self._integer("offsets.topic.segment.bytes")),
            }
        if name == TRANSACTION_STATE_TOPIC:
            return {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(self._integer("transaction.state.log.min.isr")),
                "segment.bytes": str(self._integer("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            }
        return {}

    def _integer(self, key: str) -> int:
        value = self._config.get(key)
        assert isinstance(value, int)
        return value


def check_partition_count(count: int) -> None:
    """Raises KafkaError POLICY_VIOLATION for more partitions than one request may create."""
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
