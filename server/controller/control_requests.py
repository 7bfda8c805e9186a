"""The controller's requests to brokers (Kafka: AbstractControlRequest), as values and as messages. No I/O.

A received request may have any version and the largest size of a request: it is converted in short turns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, code_of
from ...protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from ...protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from ...protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition
from ..metadata.metadata_cache import PartitionImage, TopicImage
from ..metadata.znodes import BrokerEndpoint, BrokerInfo
from ..replication.inter_broker_versions import highest_version
from ..replication.leader_and_isr import LeaderAndIsrState
from ..runtime.loop_sharing import CountBudget

NO_EPOCH = -1
"""Instead of a leader epoch: any."""
EPOCH_DURING_DELETION = -2
"""Instead of a leader epoch: the topic is being deleted, newer than any leader."""
LAYOUTS = {ApiKey.LEADER_AND_ISR: (0, 2), ApiKey.STOP_REPLICA: (0, 1, 3), ApiKey.UPDATE_METADATA: (0, 5)}
"""The versions that change the layout: the last one groups by topic and has the broker epoch."""
LEADER_AND_ISR_BY_TOPIC, STOP_REPLICA_BY_NAME, STOP_REPLICA_WITH_EPOCHS, UPDATE_METADATA_BY_TOPIC = 2, 1, 3, 5
TOPIC_IDS_VERSION = 5
LEADER_DURING_DELETION = -2
"""Instead of a leader: the partition is being deleted."""
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_PROTOCOL_NAMES = {number: name for name, number in SECURITY_PROTOCOLS.items()}


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """The content of an UpdateMetadata request."""

    brokers: tuple[BrokerInfo, ...]
    """All live brokers."""
    topics: tuple[TopicImage, ...] = ()
    """The topics with changes, with only their changed partitions."""
    removed: tuple[TopicImage, ...] = ()
    """The topics with deletions, with only the partitions that are being deleted."""


class SendingController(NamedTuple):
    """The controller that sends a request."""

    broker_id: int
    epoch: int


class RequestVersions(NamedTuple):
    """The versions in which a request may be sent. All have the layout of the lowest."""

    lowest: int
    highest: int


def request_versions(api_key: ApiKey, inter_broker_protocol: str) -> RequestVersions:
    """Return the versions of a request that all brokers of a cluster support."""
    highest = highest_version(api_key, inter_broker_protocol)
    return RequestVersions(max(layout for layout in LAYOUTS[api_key] if layout <= highest), highest)


# LeaderAndIsr


def leader_and_isr_request(
    sender: SendingController,
    broker_epoch: int,
    partition_states: Sequence[LeaderAndIsrState],
    leaders: Mapping[int, BrokerEndpoint],
    *,
    layout: int,
) -> LeaderAndIsrRequest:
    """Build the request for one broker; `leaders` are the endpoints of live leaders."""
    topics: dict[str, LeaderAndIsrTopicState] = {}
    for partition_state in partition_states:
        name = partition_state.topic_partition.topic
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = LeaderAndIsrTopicState(topic_name=name, topic_id=partition_state.topic_id)
        topic.partition_states.append(
            LeaderAndIsrPartitionState(
                topic_name=name,
                partition_index=partition_state.topic_partition.partition,
                controller_epoch=partition_state.controller_epoch,
                leader=partition_state.leader,
                leader_epoch=partition_state.leader_epoch,
                isr=list(partition_state.isr),
                partition_epoch=partition_state.partition_epoch,
                replicas=list(partition_state.replicas),
                adding_replicas=list(partition_state.adding_replicas),
                removing_replicas=list(partition_state.removing_replicas),
                is_new=partition_state.is_new,
                leader_recovery_state=partition_state.leader_recovery_state,
            )
        )
    request = LeaderAndIsrRequest(
        controller_id=sender.broker_id,
        controller_epoch=sender.epoch,
        broker_epoch=broker_epoch,
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
            for broker_id, endpoint in leaders.items()
        ],
    )
    if layout >= LEADER_AND_ISR_BY_TOPIC:
        request.topic_states = list(topics.values())
    else:
        request.ungrouped_partition_states = [one for topic in topics.values() for one in topic.partition_states]
    return request


async def leader_and_isr_states(request: LeaderAndIsrRequest) -> list[LeaderAndIsrState]:
    """Return the partition states of a request of any version."""
    partition_states, budget = [], CountBudget()
    for state in request.ungrouped_partition_states:
        partition_states.append(
            _leader_and_isr_state(TopicPartition(state.topic_name, state.partition_index), ZERO_UUID, state)
        )
        await budget.step()
    for topic in request.topic_states:
        for state in topic.partition_states:
            partition_states.append(
                _leader_and_isr_state(TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state)
            )
            await budget.step()
    return partition_states


def _leader_and_isr_state(
    partition: TopicPartition, topic_id: UUID, state: LeaderAndIsrPartitionState
) -> LeaderAndIsrState:
    return LeaderAndIsrState(
        topic_partition=partition,
        topic_id=topic_id,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        is_new=state.is_new,
        controller_epoch=state.controller_epoch,
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        leader_recovery_state=state.leader_recovery_state,
    )


async def leader_and_isr_response(
    version: int, partition_states: Iterable[LeaderAndIsrState], results: Mapping[TopicPartition, ErrorCode]
) -> LeaderAndIsrResponse:
    """Build the response with the result of each partition."""
    response = LeaderAndIsrResponse()
    topics: dict[UUID, LeaderAndIsrTopicError] = {}
    budget = CountBudget()
    for partition_state in partition_states:
        await budget.step()
        error = LeaderAndIsrPartitionError(
            topic_name=partition_state.topic_partition.topic,
            partition_index=partition_state.topic_partition.partition,
            error_code=results[partition_state.topic_partition],
        )
        if version < TOPIC_IDS_VERSION:
            response.partition_errors.append(error)
            continue
        topic = topics.get(partition_state.topic_id)
        if topic is None:
            topic = topics[partition_state.topic_id] = LeaderAndIsrTopicError(topic_id=partition_state.topic_id)
            response.topics.append(topic)
        topic.partition_errors.append(error)
    return response


def leader_and_isr_results(
    response: LeaderAndIsrResponse, partition_states: Iterable[LeaderAndIsrState]
) -> dict[TopicPartition, ErrorCode]:
    """Return the results in a broker's response, without the partitions that it lacks."""
    names = {partition_state.topic_id: partition_state.topic_partition.topic for partition_state in partition_states}
    errors = [(one.topic_name, one) for one in response.partition_errors]
    errors += [
        (names[topic.topic_id], one)
        for topic in response.topics
        if topic.topic_id in names
        for one in topic.partition_errors
    ]
    return {TopicPartition(name, one.partition_index): code_of(one.error_code) for name, one in errors}


# StopReplica


class StopReplicaState(NamedTuple):
    """One replica to stop."""

    partition: TopicPartition
    leader_epoch: int
    delete: bool


def stop_replica_request(
    sender: SendingController,
    broker_epoch: int,
    leader_epochs: Mapping[TopicPartition, int],
    *,
    delete: bool,
    layout: int,
) -> StopReplicaRequest:
    """Build the request to stop replicas."""
    request = StopReplicaRequest(
        controller_id=sender.broker_id, controller_epoch=sender.epoch, broker_epoch=broker_epoch
    )
    if layout < STOP_REPLICA_WITH_EPOCHS:
        request.delete_partitions = delete
    if layout < STOP_REPLICA_BY_NAME:
        request.ungrouped_partitions = [
            StopReplicaPartitionV0(topic_name=name, partition_index=index) for name, index in leader_epochs
        ]
        return request
    topics: dict[str, dict[int, int]] = {}
    for (name, index), leader_epoch in leader_epochs.items():
        topics.setdefault(name, {})[index] = leader_epoch
    if layout < STOP_REPLICA_WITH_EPOCHS:
        request.topics = [StopReplicaTopicV1(name=name, partition_indexes=list(its)) for name, its in topics.items()]
        return request
    for name, its in topics.items():
        states = [
            StopReplicaPartitionState(partition_index=index, leader_epoch=leader_epoch, delete_partition=delete)
            for index, leader_epoch in its.items()
        ]
        request.topic_states.append(StopReplicaTopicState(topic_name=name, partition_states=states))
    return request


def stop_replica_states(request: StopReplicaRequest) -> Iterator[StopReplicaState]:
    """Yield the replicas in a request of any version, which may have hundreds of thousands."""
    delete = request.delete_partitions
    for one in request.ungrouped_partitions:
        yield StopReplicaState(TopicPartition(one.topic_name, one.partition_index), NO_EPOCH, delete)
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield StopReplicaState(TopicPartition(topic.name, index), NO_EPOCH, delete)
    for of_topic in request.topic_states:
        for state in of_topic.partition_states:
            partition = TopicPartition(of_topic.topic_name, state.partition_index)
            yield StopReplicaState(partition, state.leader_epoch, state.delete_partition)


async def stop_replica_response(results: Mapping[TopicPartition, ErrorCode]) -> StopReplicaResponse:
    """Build the response with the result of each replica."""
    response, budget = StopReplicaResponse(), CountBudget()
    for (name, index), error in results.items():
        answer = StopReplicaPartitionError(topic_name=name, partition_index=index, error_code=error)
        response.partition_errors.append(answer)
        await budget.step()
    return response


def stop_replica_results(response: StopReplicaResponse) -> dict[TopicPartition, ErrorCode]:
    """Return the results in a broker's response."""
    return {
        TopicPartition(one.topic_name, one.partition_index): code_of(one.error_code)
        for one in response.partition_errors
    }


# UpdateMetadata


def update_metadata_request(
    sender: SendingController, broker_epoch: int, update: MetadataUpdate, *, layout: int
) -> UpdateMetadataRequest:
    """Build the request with the changed part of the cluster's metadata."""
    alive = {broker.broker_id for broker in update.brokers}
    states = [_topic_state(topic, sender.epoch, alive) for topic in update.topics]
    states += [_topic_state(topic, sender.epoch, alive, LEADER_DURING_DELETION) for topic in update.removed]
    request = UpdateMetadataRequest(
        controller_id=sender.broker_id,
        controller_epoch=sender.epoch,
        broker_epoch=broker_epoch,
        live_brokers=[_live_broker(broker) for broker in update.brokers],
    )
    if layout >= UPDATE_METADATA_BY_TOPIC:
        request.topic_states = states
    else:
        request.ungrouped_partition_states = [one for topic in states for one in topic.partition_states]
    return request


def _live_broker(broker: BrokerInfo) -> UpdateMetadataBroker:
    result = UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener_name,
                security_protocol=SECURITY_PROTOCOLS.get(endpoint.security_protocol, 0),
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )
    # Version 0 has a single endpoint.
    for endpoint in broker.endpoints:
        if endpoint.security_protocol == "PLAINTEXT":
            result.v0_host, result.v0_port = endpoint.host, endpoint.port
    return result


def _topic_state(
    topic: TopicImage, controller_epoch: int, alive: Collection[int], leader: int | None = None
) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(
        topic_name=topic.name,
        topic_id=topic.topic_id,
        partition_states=[
            UpdateMetadataPartitionState(
                topic_name=topic.name,
                partition_index=index,
                controller_epoch=controller_epoch,
                leader=image.leader if leader is None else leader,
                leader_epoch=image.leader_epoch,
                isr=list(image.isr),
                zk_version=image.partition_epoch,
                replicas=list(image.replicas),
                offline_replicas=[one for one in image.replicas if one not in alive or one in image.offline_replicas],
            )
            for index, image in topic.partitions.items()
        ],
    )


async def metadata_update(request: UpdateMetadataRequest) -> MetadataUpdate:
    """Return the content of a request of any version."""
    budget = CountBudget()
    states: dict[tuple[str, UUID], list[UpdateMetadataPartitionState]] = {}
    for state in request.ungrouped_partition_states:
        states.setdefault((state.topic_name, ZERO_UUID), []).append(state)
        await budget.step()
    for topic in request.topic_states:
        states.setdefault((topic.topic_name, topic.topic_id), []).extend(topic.partition_states)
        await budget.step()
    topics, removed = [], []
    for (name, topic_id), its_states in states.items():
        images: dict[int, PartitionImage] = {}
        for state in its_states:
            images[state.partition_index] = _image(state)
            await budget.step()
        deleted = {index: image for index, image in images.items() if image.leader == LEADER_DURING_DELETION}
        kept = {index: image for index, image in images.items() if index not in deleted}
        await budget.step()
        if kept:
            topics.append(TopicImage(name, topic_id, kept))
        if deleted:
            removed.append(TopicImage(name, topic_id, deleted))
    brokers = []
    for broker in request.live_brokers:
        brokers.append(_broker(broker))
        await budget.step(1 + len(broker.endpoints))
    return MetadataUpdate(tuple(brokers), tuple(topics), tuple(removed))


def _image(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        partition=state.partition_index,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.zk_version,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        offline_replicas=tuple(state.offline_replicas),
    )


def _broker(broker: UpdateMetadataBroker) -> BrokerInfo:
    endpoints = tuple(_endpoint(one) for one in broker.endpoints)
    if broker.v0_host:
        endpoints = (BrokerEndpoint("PLAINTEXT", broker.v0_host, broker.v0_port),)
    return BrokerInfo(broker.id, endpoints, broker.rack)


def _endpoint(endpoint: UpdateMetadataEndpoint) -> BrokerEndpoint:
    protocol = _PROTOCOL_NAMES.get(endpoint.security_protocol, "PLAINTEXT")
    # Before version 3 a listener had the name of its security protocol.
    return BrokerEndpoint(endpoint.listener or protocol, endpoint.host, endpoint.port, protocol)
