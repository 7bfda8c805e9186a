"""A broker's metadata image in the form of the model, and the parts of the broker that must agree with the image."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.broker import BrokerServer
from barnabas.server.image.metadata_image import MetadataImage
from barnabas.simulation.kraft.metadata_state import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    MetadataState,
    ModelBroker,
    ModelPartition,
)

SEGMENT_BYTES = "segment.bytes"
FETCHERS = "num.replica.fetchers"


def state_of(image: MetadataImage) -> MetadataState:
    """Return the content of an image."""
    return MetadataState(
        {
            one.id: ModelBroker(
                one.epoch,
                one.incarnation_id,
                one.fenced,
                one.in_controlled_shutdown,
                tuple(one.directories),
                tuple((listener.name, listener.host, listener.port) for listener in one.listeners.values()),
                0,
            )
            for one in image.cluster.brokers.values()
        },
        {topic.id: topic.name for topic in image.topics.by_id.values()},
        {
            (topic.id, index): ModelPartition(
                one.replicas,
                one.directories,
                one.isr,
                one.removing_replicas,
                one.adding_replicas,
                one.leader,
                one.leader_epoch,
                one.partition_epoch,
            )
            for topic in image.topics.by_id.values()
            for index, one in topic.partitions.items()
        },
        {(int(key.type), key.name): dict(config) for key, config in image.configs.configs.items()},
        dict(image.features.finalized_versions),
        image.producer_ids.next_producer_id,
    )


def comparable(state: MetadataState) -> MetadataState:
    """Return a state without the values that metadata images do not contain."""
    copy = state.copy()
    copy.brokers = {number: broker._replace(registered_at=0) for number, broker in state.brokers.items()}
    return copy


def first_difference(found: MetadataState, wanted: MetadataState) -> str:
    """Return a description of the first difference of two states, or an empty string if they are equal."""
    for name in ("brokers", "topics", "partitions", "configs", "features"):
        ours, theirs = getattr(found, name), getattr(wanted, name)
        if ours != theirs:
            key = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
            return f"{name} {key}: {ours.get(key)}, expected {theirs.get(key)}"
    if found.next_producer_id != wanted.next_producer_id:
        return f"next producer id {found.next_producer_id}, expected {wanted.next_producer_id}"
    return ""


def outdated_parts(server: BrokerServer, broker_id: int, state: MetadataState) -> Iterator[str]:
    """Yield the parts of a broker that do not agree with the metadata that the broker has applied."""
    yield from outdated_cache(server, state)
    yield from _replicas(server, broker_id, state)
    settings = [state.configs.get((BROKER_RESOURCE, name), {}).get(FETCHERS) for name in (str(broker_id), "")]
    static = server.config.static.get(FETCHERS, "1")
    wanted = int(next((one for one in settings if one is not None), static))
    if server.config.num_replica_fetchers != wanted:
        yield f"{FETCHERS} is {server.config.num_replica_fetchers}, expected {wanted}"


def outdated_cache(server: BrokerServer, state: MetadataState) -> Iterator[str]:
    """Yield the brokers and topics in the metadata cache that do not agree with the metadata."""
    metadata = server.state.metadata
    alive = {number: broker.epoch for number, broker in state.brokers.items() if not broker.fenced}
    cached = {number: broker.broker_epoch for number, broker in metadata.brokers.items()}
    if cached != alive:
        yield f"live brokers {cached}, expected {alive}"
    names = dict(state.topics)
    topics = {topic.topic_id: topic.name for topic in metadata.topics}
    if topics != names:
        yield f"topics {topics}, expected {names}"
        return
    for topic in metadata.topics:
        for index, one in topic.partitions.items():
            wanted = state.partitions.get((topic.topic_id, index))
            found = (one.leader, one.leader_epoch, one.partition_epoch, one.isr, one.replicas)
            if wanted is None or found != (
                *(wanted.leader, wanted.leader_epoch, wanted.partition_epoch, wanted.isr, wanted.replicas),
            ):
                yield f"{topic.name}-{index} is cached as {found}, expected {wanted}"


def _replicas(server: BrokerServer, broker_id: int, state: MetadataState) -> Iterator[str]:
    wanted = {
        TopicPartition(state.topics[topic_id], index): (topic_id, one)
        for (topic_id, index), one in state.partitions.items()
        if broker_id in one.replicas
    }
    found = {partition.topic_partition: partition for partition in server.state.replica_manager.partitions}
    for key in found.keys() - wanted.keys():
        yield f"a replica of {key}, which is on other brokers or deleted"
    for key in sorted(wanted.keys() - found.keys()):
        yield f"no replica of {key}"
    for key in sorted(wanted.keys() & found.keys()):
        (topic_id, one), partition = wanted[key], found[key]
        if partition.topic_id != topic_id:
            yield f"{key} has topic id {partition.topic_id}, expected {topic_id}"
        elif partition.leader_epoch != one.leader_epoch:
            yield f"{key} has leader epoch {partition.leader_epoch}, expected {one.leader_epoch}"
        elif partition.is_leader != (one.leader == broker_id):
            yield f"{key} leads: {partition.is_leader}, the leader is {one.leader}"
        elif not partition.is_offline:
            text = state.configs.get((TOPIC_RESOURCE, key.topic), {}).get(SEGMENT_BYTES)
            size = int(text or server.config.static.get("log.segment.bytes", "1073741824"))
            if partition.log.config.segment_bytes != size:
                yield f"{key} has {SEGMENT_BYTES} {partition.log.config.segment_bytes}, expected {size}"
