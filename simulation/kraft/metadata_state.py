"""The metadata of a modelled KRaft cluster. The product has its own images: both are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ...protocol import metadata_records as r

NO_LEADER, UNCHANGED = -1, -2
UNASSIGNED, LOST = UUID(int=1), UUID(int=2)
"""Kafka's DirectoryId."""
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
"""Kafka's ConfigResource types."""
RECORD_VERSIONS: dict[type, int] = {
    r.RegisterBrokerRecord: 3,
    r.PartitionRecord: 2,
    r.PartitionChangeRecord: 2,
    r.BrokerRegistrationChangeRecord: 2,
}
"""The versions of records at metadata.version 4.0-IV3; all others have version 0."""


class ModelBroker(NamedTuple):
    """A registration."""

    epoch: int
    incarnation_id: UUID
    fenced: bool
    leaving: bool
    """Whether it is in controlled shutdown."""
    directories: tuple[UUID, ...]
    listeners: tuple[tuple[str, str, int], ...]
    registered_at: int
    """The offset of the newest registration record."""

    @property
    def is_active(self) -> bool:
        """Return whether it may lead and be in sync."""
        return not self.fenced and not self.leaving


class ModelPartition(NamedTuple):
    """The state of a partition."""

    replicas: tuple[int, ...]
    directories: tuple[UUID, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int

    def directory(self, broker_id: int) -> UUID:
        """Return the log directory of a replica."""
        return self.directories[self.replicas.index(broker_id)]


PartitionKey = tuple[UUID, int]
ResourceKey = tuple[int, str]


@dataclass
class MetadataState:
    """Everything that records set. A copy shares no mutable part."""

    brokers: dict[int, ModelBroker] = field(default_factory=dict)
    topics: dict[UUID, str] = field(default_factory=dict)
    partitions: dict[PartitionKey, ModelPartition] = field(default_factory=dict)
    configs: dict[ResourceKey, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = -1

    def copy(self) -> MetadataState:
        """Return a state that changes independently."""
        return MetadataState(
            dict(self.brokers),
            dict(self.topics),
            dict(self.partitions),
            dict(self.configs),
            dict(self.features),
            self.next_producer_id,
        )

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of the topic of this name."""
        return next((topic_id for topic_id, known in self.topics.items() if known == name), None)

    def replay(self, record: Any, offset: int) -> None:
        """Apply a record; the records of transactions have no effect here."""
        match record:
            case r.RegisterBrokerRecord():
                self.brokers[record.broker_id] = ModelBroker(
                    record.broker_epoch,
                    record.incarnation_id,
                    record.fenced,
                    record.in_controlled_shutdown,
                    tuple(record.log_dirs),
                    tuple((one.name, one.host, one.port) for one in record.end_points),
                    offset,
                )
            case r.UnregisterBrokerRecord():
                del self.brokers[record.broker_id]
            case r.BrokerRegistrationChangeRecord():
                self._change_broker(record)
            case r.TopicRecord():
                self.topics[record.topic_id] = record.name
            case r.RemoveTopicRecord():
                self.configs.pop((TOPIC_RESOURCE, self.topics.pop(record.topic_id)), None)
                for key in [key for key in self.partitions if key[0] == record.topic_id]:
                    del self.partitions[key]
            case r.PartitionRecord():
                self.partitions[record.topic_id, record.partition_id] = ModelPartition(
                    tuple(record.replicas),
                    tuple(record.directories),
                    tuple(record.isr),
                    tuple(record.removing_replicas),
                    tuple(record.adding_replicas),
                    record.leader,
                    record.leader_epoch,
                    record.partition_epoch,
                )
            case r.PartitionChangeRecord():
                self._change_partition(record)
            case r.ConfigRecord():
                self._set(record)
            case r.FeatureLevelRecord():
                self.features[record.name] = record.feature_level
            case r.ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id

    def _change_broker(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers[record.broker_id]
        self.brokers[record.broker_id] = broker._replace(
            fenced=record.fenced > 0 if record.fenced else broker.fenced,
            leaving=record.in_controlled_shutdown > 0 if record.in_controlled_shutdown else broker.leaving,
            directories=tuple(record.log_dirs) or broker.directories,
        )

    def _change_partition(self, record: r.PartitionChangeRecord) -> None:
        key = record.topic_id, record.partition_id
        before = self.partitions[key]
        is_elected = record.leader != UNCHANGED
        self.partitions[key] = ModelPartition(
            before.replicas if record.replicas is None else tuple(record.replicas),
            before.directories if record.directories is None else tuple(record.directories),
            before.isr if record.isr is None else tuple(record.isr),
            before.removing if record.removing_replicas is None else tuple(record.removing_replicas),
            before.adding if record.adding_replicas is None else tuple(record.adding_replicas),
            record.leader if is_elected else before.leader,
            before.leader_epoch + is_elected,
            before.partition_epoch + 1,
        )

    def _set(self, record: r.ConfigRecord) -> None:
        key = record.resource_type, record.resource_name
        config = dict(self.configs.get(key, {}))
        if record.value is None:
            config.pop(record.name, None)
        else:
            config[record.name] = record.value
        if config:
            self.configs[key] = config
        else:
            self.configs.pop(key, None)

    def records(self) -> Iterator[Any]:
        """Yield the records of a snapshot."""
        for name, level in sorted(self.features.items(), key=lambda one: (one[0] != "metadata.version", one[0])):
            yield r.FeatureLevelRecord(name=name, feature_level=level)
        for broker_id, broker in self.brokers.items():
            yield r.RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=broker.epoch,
                incarnation_id=broker.incarnation_id,
                end_points=[r.BrokerEndpoint(name=name, host=host, port=port) for name, host, port in broker.listeners],
                fenced=broker.fenced,
                in_controlled_shutdown=broker.leaving,
                log_dirs=list(broker.directories),
            )
        for topic_id, name in self.topics.items():
            yield r.TopicRecord(name=name, topic_id=topic_id)
        for (topic_id, index), one in self.partitions.items():
            yield r.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=list(one.replicas),
                directories=list(one.directories),
                isr=list(one.isr),
                removing_replicas=list(one.removing),
                adding_replicas=list(one.adding),
                leader=one.leader,
                leader_epoch=one.leader_epoch,
                partition_epoch=one.partition_epoch,
            )
        for (kind, name), config in self.configs.items():
            for key, value in config.items():
                yield r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        if self.next_producer_id >= 0:
            yield r.ProducerIdsRecord(broker_id=-1, next_producer_id=self.next_producer_id)


def encoded(record: Any) -> bytes:
    """Return the value of a record in the metadata log."""
    return r.encode_metadata_record(record, RECORD_VERSIONS.get(type(record), 0))
