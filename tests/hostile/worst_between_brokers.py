"""The same for what brokers ask of each other, and for what clients tell of themselves.

Whoever may do that could be a broker gone mad, or anybody where everybody may do everything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID, uuid5

from tests.hostile.worst_requests import BROKER_ID, FRAME_BYTES, NEW_PARTITIONS, TOPIC, Known, Worst

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.compression import Compression, compress
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData
from barnabas.protocol.messages.alter_partition import TopicData as AlteredTopic
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.server.controller.control_requests import LEADER_DURING_DELETION
from barnabas.server.telemetry.client_metrics_manager import ClientMetricsInstance
from barnabas.server.telemetry.subscriptions import ALL_METRICS, RequestedMetrics

FOLLOWER_ID = 2
FOLLOWED = "followed"
FOLLOWED_PARTITIONS = 500
"""Each has a state that is written when its in-sync replicas change."""
ORDERED = "ordered"
BELIEVED = "believed"
MANY_REPLICAS = "of-many-replicas"
WISH = RequestedMetrics((ALL_METRICS,), 1000)
"""What the broker asks of clients."""
K = ApiKey


def _ordered(topics: Callable[[int], list[LeaderAndIsrTopicState]]) -> Callable[[int, Known], LeaderAndIsrRequest]:
    return lambda count, known: LeaderAndIsrRequest(
        controller_id=BROKER_ID,
        controller_epoch=known.controller_epoch,
        broker_epoch=known.broker_epoch,
        topic_states=topics(count),
    )


def _orders(indexes: range | list[int], name: str = ORDERED, **state: Any) -> LeaderAndIsrTopicState:
    states = [LeaderAndIsrPartitionState(partition_index=index, leader=BROKER_ID, **state) for index in indexes]
    return LeaderAndIsrTopicState(topic_name=name, topic_id=uuid5(UUID(int=1), name), partition_states=states)


def _mine(indexes: range | list[int], name: str = ORDERED) -> LeaderAndIsrTopicState:
    return _orders(indexes, name, replicas=[BROKER_ID], isr=[BROKER_ID], is_new=True)


def _stopped(fill: Callable[[StopReplicaRequest, int], None]) -> Callable[[int, Known], StopReplicaRequest]:
    def make(count: int, known: Known) -> StopReplicaRequest:
        request = StopReplicaRequest(
            controller_id=BROKER_ID, controller_epoch=known.controller_epoch, broker_epoch=known.broker_epoch
        )
        fill(request, count)
        return request

    return make


def _stop_by_name(*, delete: bool) -> Callable[[StopReplicaRequest, int], None]:
    def fill(request: StopReplicaRequest, count: int) -> None:
        request.topics = [StopReplicaTopicV1(name=ORDERED, partition_indexes=list(range(count)))]
        request.delete_partitions = delete

    return fill


def forgotten(known: Known) -> StopReplicaRequest:
    """Of the partition with many replicas, so that the next order for it is the first."""
    topics = [StopReplicaTopicV1(name=MANY_REPLICAS, partition_indexes=[0])]
    return StopReplicaRequest(
        controller_id=BROKER_ID,
        controller_epoch=known.controller_epoch,
        broker_epoch=known.broker_epoch,
        topics=topics,
        delete_partitions=True,
    )


def _stop_with_epochs(request: StopReplicaRequest, count: int) -> None:
    states = [StopReplicaPartitionState(partition_index=number, delete_partition=True) for number in range(count)]
    request.topic_states = [StopReplicaTopicState(topic_name=ORDERED, partition_states=states)]


def _told(topics: Callable[[int], list[UpdateMetadataTopicState]]) -> Callable[[int, Known], UpdateMetadataRequest]:
    return lambda count, known: update(known, topics=topics(count))


def update(known: Known, **parts: Any) -> UpdateMetadataRequest:
    """What a controller tells."""
    topics, brokers = parts.get("topics", []), parts.get("brokers", [UpdateMetadataBroker(id=BROKER_ID)])
    return UpdateMetadataRequest(
        controller_id=BROKER_ID,
        controller_epoch=known.controller_epoch,
        broker_epoch=known.broker_epoch,
        topic_states=topics,
        live_brokers=brokers,
    )


def _images(indexes: range | list[int], name: str = BELIEVED, **state: Any) -> UpdateMetadataTopicState:
    states = [UpdateMetadataPartitionState(partition_index=index, **state) for index in indexes]
    return UpdateMetadataTopicState(topic_name=name, topic_id=uuid5(UUID(int=1), name), partition_states=states)


def _many_images(leader: int) -> Callable[[int], list[UpdateMetadataTopicState]]:
    return lambda count: [_images([0], f"{BELIEVED}{number:x}", leader=leader) for number in range(count)]


def _brokers(count: int, known: Known) -> UpdateMetadataRequest:
    return update(known, brokers=[UpdateMetadataBroker(id=number) for number in range(count)])


def _altered(topics: Callable[[int, Known], list[AlteredTopic]]) -> Callable[[int, Known], AlterPartitionRequest]:
    return lambda count, known: AlterPartitionRequest(
        broker_id=BROKER_ID, broker_epoch=known.broker_epoch, topics=topics(count, known)
    )


def _isr_of_unknown(count: int, _: Known) -> list[AlteredTopic]:
    asked = [PartitionData(partition_index=0)]
    return [
        AlteredTopic(topic_name=f"x{number}", topic_id=UUID(int=number + 1), partitions=asked)
        for number in range(count)
    ]


def _isr_of(indexes: Callable[[int], range | list[int]], *isr: int) -> Callable[[int, Known], list[AlteredTopic]]:
    def topics(count: int, known: Known) -> list[AlteredTopic]:
        brokers = [BrokerState(broker_id=broker) for broker in isr]
        asked = [PartitionData(partition_index=index, new_isr_with_epochs=brokers) for index in indexes(count)]
        return [AlteredTopic(topic_name=TOPIC, topic_id=known.topic_id, partitions=asked)]

    return topics


def _long_isr(count: int, known: Known) -> list[AlteredTopic]:
    isr = [BrokerState(broker_id=number) for number in range(count)]
    asked = [PartitionData(partition_index=0, new_isr_with_epochs=isr)]
    return [AlteredTopic(topic_id=known.topic_id, partitions=asked)]


def _without_follower(_: int, known: Known) -> AlterPartitionRequest:
    """The follower of all partitions is to be out of sync."""
    asked = [PartitionData(partition_index=index, new_isr=[BROKER_ID]) for index in range(FOLLOWED_PARTITIONS)]
    topics = [AlteredTopic(topic_name=FOLLOWED, partitions=asked)]
    return AlterPartitionRequest(broker_id=BROKER_ID, broker_epoch=known.broker_epoch, topics=topics)


def following_preferred() -> AlterPartitionReassignmentsRequest:
    """The follower is to lead all partitions if anybody asks for an election."""
    partitions = [
        ReassignablePartition(partition_index=index, replicas=[FOLLOWER_ID, BROKER_ID])
        for index in range(FOLLOWED_PARTITIONS)
    ]
    topics = [ReassignableTopic(name=FOLLOWED, partitions=partitions)]
    return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=60_000)


def _follower_elected(_: int, __: Known) -> ElectLeadersRequest:
    partitions = TopicPartitions(topic=FOLLOWED, partitions=list(range(FOLLOWED_PARTITIONS)))
    return ElectLeadersRequest(election_type=0, timeout_ms=60_000, topic_partitions=[partitions])


def telemetry_client(name: str) -> UUID:
    """The client that pushes in a request of that name: each may do so once in a while only."""
    return uuid5(UUID(int=2), name)


def _pushed(name: str, codec: int, data: Callable[[int], bytes], error: ErrorCode) -> Worst:
    client = ClientMetricsInstance(telemetry_client(name), {}, 0.0)
    client.subscribe(WISH, 0)

    def make(count: int, _: Known) -> PushTelemetryRequest:
        return PushTelemetryRequest(
            client_instance_id=client.id,
            subscription_id=client.subscription,
            compression_type=codec,
            metrics=data(count),
        )

    return Worst(name, K.PUSH_TELEMETRY, 0, make, error)


def _points(count: int) -> bytes:
    """As many numbers as there is room for, each with a label of its own, under names as long as they may be."""
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    message = MetricsData()
    scope = message.resource_metrics.add().scope_metrics.add()
    for number in range(min(count, FRAME_BYTES) // 1000):
        metric = scope.metrics.add(name=f"{number:x}" * 100)
        point = metric.gauge.data_points.add(as_int=number)
        for label in range(9):
            point.attributes.append(KeyValue(key=f"l{label}", value=AnyValue(string_value="v" * 60)))
    return message.SerializeToString()


_HOLLOW_METRIC = b"\x12\0"
"""A metric without anything."""


def _hollow_metrics(count: int) -> bytes:
    """One resource with one scope of metrics without anything."""
    inner = _HOLLOW_METRIC * (count // 2)
    for tag in (b"\x12", b"\n"):
        length, size = bytearray(), len(inner)
        while size > 0x7F:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        length.append(size)
        inner = tag + bytes(length) + inner
    return inner


@cache
def _bomb() -> bytes:
    return compress(Compression.GZIP, bytes(64 << 20))


NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
WORST_BETWEEN_BROKERS: tuple[Worst, ...] = (
    Worst("partitions of others", K.LEADER_AND_ISR, 4, _ordered(lambda n: [_orders(range(n))]), UNKNOWN),
    Worst(
        "topics of others",
        K.LEADER_AND_ISR,
        7,
        _ordered(lambda n: [_orders([0], f"{ORDERED}{number:x}") for number in range(n)]),
        UNKNOWN,
    ),
    Worst("new partitions", K.LEADER_AND_ISR, 7, _ordered(lambda n: [_mine(range(min(n, NEW_PARTITIONS)))]), NONE),
    Worst("the same new partition", K.LEADER_AND_ISR, 4, _ordered(lambda n: [_mine([NEW_PARTITIONS + 9] * n)]), NONE),
    Worst(
        "replicas",
        K.LEADER_AND_ISR,
        7,
        _ordered(lambda n: [_orders([0], MANY_REPLICAS, replicas=list(range(n)), isr=list(range(n)), is_new=True)]),
        NONE,
    ),
    Worst("partitions, old", K.STOP_REPLICA, 2, _stopped(_stop_by_name(delete=False)), NONE),
    Worst("partitions deleted, old", K.STOP_REPLICA, 2, _stopped(_stop_by_name(delete=True)), NONE),
    Worst("partitions deleted", K.STOP_REPLICA, 4, _stopped(_stop_with_epochs), NONE),
    Worst("partitions", K.UPDATE_METADATA, 8, _told(lambda n: [_images(range(n))]), NONE),
    Worst("replicas", K.UPDATE_METADATA, 8, _told(lambda n: [_images([0], replicas=list(range(n)))]), NONE),
    Worst(
        "partitions gone",
        K.UPDATE_METADATA,
        8,
        _told(lambda n: [_images(range(n), leader=LEADER_DURING_DELETION)]),
        NONE,
    ),
    Worst("topics", K.UPDATE_METADATA, 8, _told(_many_images(BROKER_ID)), NONE),
    Worst("topics gone", K.UPDATE_METADATA, 8, _told(_many_images(LEADER_DURING_DELETION)), NONE),
    Worst("brokers", K.UPDATE_METADATA, 8, _brokers, NONE),
    Worst("unknown topics", K.ALTER_PARTITION, 3, _altered(_isr_of_unknown), ErrorCode.UNKNOWN_TOPIC_ID),
    Worst("partitions", K.ALTER_PARTITION, 3, _altered(_isr_of(range)), UNKNOWN),
    Worst("the same partition", K.ALTER_PARTITION, 3, _altered(_isr_of(lambda n: [0] * n)), ErrorCode.INVALID_REQUEST),
    Worst("the same partition, as it is", K.ALTER_PARTITION, 3, _altered(_isr_of(lambda n: [0] * n, BROKER_ID)), NONE),
    Worst("replicas", K.ALTER_PARTITION, 3, _altered(_long_isr), ErrorCode.INVALID_REQUEST),
)
WORST_WITH_FOLLOWER = (
    Worst("followers out of sync", K.ALTER_PARTITION, 1, _without_follower, NONE),
    Worst("other leaders", K.ELECT_LEADERS, 1, _follower_elected, NONE),
)
"""A broker alone has neither other in-sync replicas nor other leaders that it could be asked for."""
WORST_OF_TELEMETRY = (
    _pushed("bytes", Compression.NONE, bytes, ErrorCode.INVALID_RECORD),
    _pushed("hollow metrics, zstd", Compression.ZSTD, lambda n: compress(Compression.ZSTD, _hollow_metrics(n)), NONE),
    _pushed("numbers", Compression.NONE, _points, NONE),
    _pushed("a bomb", Compression.GZIP, lambda _: _bomb(), ErrorCode.TELEMETRY_TOO_LARGE),
)
