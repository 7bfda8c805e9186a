"""A client's view of the cluster: brokers, topics, and the leaders of partitions. No I/O.

Updated by Metadata responses and by the leader hints in Produce and Fetch responses (KIP-951). A leader epoch never
decreases: older metadata of a lagging broker is ignored, partition by partition, as in Java's client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from ..protocol.errors import ErrorCode
from ..protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ..protocol.schema import ZERO_UUID
from ..protocol.topic_partition import TopicPartition
from .errors import code_of

NO_LEADER = -1
UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """The advertised address of one broker on the listener of this client."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False
    """Whether the controller has fenced the broker (KIP-1073), because it is down or is starting."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Leader and replicas of one partition, as of `leader_epoch`."""

    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class TopicInfo:
    """One topic; `error` is the reason if `partitions` is empty."""

    name: str
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    error: ErrorCode = ErrorCode.NONE
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)
    available: tuple[int, ...] = ()
    """Return the partitions that have a leader."""


class ClusterView:
    """Brokers by id and topics by name, updated incrementally."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self.brokers: dict[int, BrokerNode] = {}
        self.topics: dict[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}

    def update(self, response: MetadataResponse, *, complete: bool = False) -> None:
        """Apply a Metadata response; topics that it omits are retained, unless it lists all topics."""
        if response.brokers:
            self.brokers = {b.node_id: BrokerNode(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        for topic in response.topics:
            if topic.name is not None:
                self._update_topic(topic.name, topic)
        if complete:
            for name in self.topics.keys() - {topic.name for topic in response.topics}:
                self._forget(name)

    def retain(self, topics: Collection[str]) -> None:
        """Remove all topics but these."""
        for name in self.topics.keys() - set(topics):
            self._forget(name)

    def update_leader(self, partition: TopicPartition, leader_id: int, leader_epoch: int) -> bool:
        """Apply a leader hint; return whether it is newer."""
        topic = self.topics.get(partition.topic)
        known = topic.partitions.get(partition.partition) if topic else None
        if topic is None or known is None or leader_epoch <= known.leader_epoch or leader_id < 0:
            return False
        topic.partitions[known.index] = PartitionInfo(
            known.index, leader_id, leader_epoch, known.replicas, known.in_sync_replicas, known.offline_replicas
        )
        topic.available = _with_leader(topic.partitions)
        return True

    def add_brokers(self, nodes: Iterable[BrokerNode]) -> None:
        """Apply the broker endpoints that accompany leader hints."""
        self.brokers.update({node.node_id: node for node in nodes})

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic else None

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the leader's broker id, or None while it is unknown or missing among the brokers."""
        info = self.partition(partition)
        return info.leader_id if info is not None and info.leader_id in self.brokers else None

    def leader_epoch(self, partition: TopicPartition) -> int:
        info = self.partition(partition)
        return info.leader_epoch if info is not None else UNKNOWN_EPOCH

    def topic_id(self, topic: str) -> UUID:
        """Return the topic's id; zero while unknown, and always with brokers before 2.8."""
        info = self.topics.get(topic)
        return info.topic_id if info is not None else ZERO_UUID

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def _update_topic(self, name: str, update: MetadataResponseTopic) -> None:
        known = self.topics.get(name)
        error = code_of(update.error_code)
        if error is not ErrorCode.NONE and not update.partitions:
            if known is None or not error.retriable or error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._forget(name)
                self.topics[name] = TopicInfo(name, error=error)
            return
        same = known is not None and known.topic_id == update.topic_id
        partitions = {}
        for p in update.partitions:
            info = PartitionInfo(
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
                code_of(p.error_code),
            )
            before = known.partitions.get(info.index) if known is not None and same else None
            stale = before is not None and UNKNOWN_EPOCH < info.leader_epoch < before.leader_epoch
            partitions[info.index] = before if before is not None and stale else info
        if not same:
            self._forget(name)
        if update.topic_id != ZERO_UUID:
            self._names[update.topic_id] = name
        self.topics[name] = TopicInfo(
            name, update.topic_id, update.is_internal, error, partitions, _with_leader(partitions)
        )

    def _forget(self, name: str) -> None:
        known = self.topics.pop(name, None)
        if known is not None:
            self._names.pop(known.topic_id, None)


def _with_leader(partitions: dict[int, PartitionInfo]) -> tuple[int, ...]:
    return tuple(index for index, info in partitions.items() if info.leader_id >= 0)
