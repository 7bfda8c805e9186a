"""The brokers and topics of a metadata image in the form in which the parts of a broker use them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ...protocol.topic_partition import TopicIdPartition
from ...storage.meta_properties import RESERVED_DIRECTORY_IDS
from ..metadata.metadata_cache import PartitionImage, TopicImage
from ..metadata.znodes import BrokerEndpoint, BrokerInfo, TopicRegistration
from ..replication.leader_and_isr import LeaderAndIsrState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..image import topics_image
    from ..image.broker_registration import BrokerRegistration
    from ..image.metadata_image import MetadataImage
    from ..image.partition_registration import PartitionRegistration
    from ..runtime.loop_sharing import CountBudget

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The names in the order of their numbers in registrations."""
UNASSIGNED_DIRECTORY, LOST_DIRECTORY = UUID(int=1), UUID(int=2)
"""Kafka's DirectoryId: no directory was chosen yet; the replica's directory has failed."""


def cached_broker(broker: BrokerRegistration) -> BrokerInfo:
    """Return the registration of a broker for the MetadataCache."""
    endpoints = tuple(
        BrokerEndpoint(one.name, one.host, one.port, SECURITY_PROTOCOLS[one.security_protocol])
        for one in broker.listeners.values()
    )
    return BrokerInfo(
        broker.id, endpoints, broker.rack, broker.epoch, in_controlled_shutdown=broker.in_controlled_shutdown
    )


def cached_partition(
    index: int, partition: PartitionRegistration, brokers: Mapping[int, BrokerRegistration]
) -> PartitionImage:
    """Return a partition for the MetadataCache."""
    return PartitionImage(
        index,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.replicas,
        partition.isr,
        offline_replicas(partition, brokers),
        partition.elr,
        partition.last_known_elr,
    )


async def cached_topic(
    topic: topics_image.TopicImage,
    brokers: Mapping[int, BrokerRegistration],
    budget: CountBudget,
    former: TopicImage | None,
    changed: Iterable[int],
) -> TopicImage:
    """Return a topic for the MetadataCache. Partitions that are not in `changed` are taken from `former`.

    `former` is None for a new topic, and `changed` then has all its partitions. Between two partitions the loop may
    serve other requests.
    """
    partitions = {} if former is None else dict(former.partitions)
    is_ordered = True
    for index in changed:
        is_ordered = is_ordered and index in partitions
        partitions[index] = cached_partition(index, topic.partitions[index], brokers)
        await budget.step()
    return TopicImage(topic.name, topic.id, partitions if is_ordered else dict(sorted(partitions.items())))


def brokers_with_other_directories(
    before: Mapping[int, BrokerRegistration], after: Mapping[int, BrokerRegistration]
) -> set[int]:
    """Return the brokers whose online log directories have changed."""
    return {
        broker_id
        for broker_id in before.keys() | after.keys()
        if _directories(before.get(broker_id)) != _directories(after.get(broker_id))
    }


def _directories(broker: BrokerRegistration | None) -> frozenset[UUID]:
    return frozenset() if broker is None else frozenset(broker.directories)


def offline_replicas(partition: PartitionRegistration, brokers: Mapping[int, BrokerRegistration]) -> tuple[int, ...]:
    """Return the replicas whose log directory is not among the online directories of their broker."""
    offline = []
    for broker_id, directory in zip(partition.replicas, partition.directories, strict=True):
        if directory == LOST_DIRECTORY:
            offline.append(broker_id)
        elif directory.int >= RESERVED_DIRECTORY_IDS:
            broker = brokers.get(broker_id)
            # Brokers before metadata.version 3.7-IV2 have registered no directories.
            if broker is not None and broker.directories and directory not in broker.directories:
                offline.append(broker_id)
    return tuple(offline)


def leader_and_isr_state(key: TopicIdPartition, partition: PartitionRegistration, *, is_new: bool) -> LeaderAndIsrState:
    """Return the state of a partition for the replica of this broker.

    The log of a new replica may be created although another log directory is offline.
    """
    return LeaderAndIsrState(
        key.topic_partition,
        key.topic_id,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.replicas,
        partition.isr,
        is_new=is_new,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
        leader_recovery_state=partition.leader_recovery_state,
    )


def local_topics(image: MetadataImage, broker_id: int) -> dict[str, TopicRegistration]:
    """Return the topics with replicas on this broker, by name, with the assignment of these partitions alone."""
    found = {}
    for topic in image.topics.by_id.values():
        assignment = {
            index: partition.replicas
            for index, partition in topic.partitions.items()
            if broker_id in partition.replicas
        }
        if assignment:
            found[topic.name] = TopicRegistration(topic.name, topic.id, assignment)
    return found
