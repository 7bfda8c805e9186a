"""What brokers ask of each other, by the handlers and in every version."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.server.cluster_plane import ClusterPlane, Member
from tests.server.controller.topics_in_cluster import T0, create, everybody_believes

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData
from barnabas.protocol.messages.alter_partition import TopicData as AlterTopic
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.cluster_member import SINCE_ALTER_PARTITION
from barnabas.server.controller import controller_channel_manager
from barnabas.server.controller.admin_manager import TopicCreation
from barnabas.server.controller.control_requests import (
    MetadataUpdate,
    StopReplicaState,
    metadata_update,
    update_metadata_request,
)
from barnabas.server.metadata import znodes
from barnabas.server.metadata.metadata_cache import TopicImage
from barnabas.server.metadata.metadata_store import BadVersionError
from barnabas.server.metadata.znodes import TopicRegistration
from barnabas.server.replication.inter_broker_versions import is_at_least
from barnabas.server.replication.leader_and_isr import IsrChange, LeaderAndIsrState


async def test_topic_that_somebody_asks_another_broker_about_is_made_by_the_controller() -> None:
    async with ClusterPlane(properties={"auto.create.topics.enable": "true", "num.partitions": "2"}) as plane:
        results = await plane.members[3].controller.auto_create(["t", "bad name"])
        assert results["t"] is None
        assert results["bad name"] is not None
        await plane.until(lambda: "t" in plane.members[3].metadata)

        def exceeded(partitions: int) -> None:
            assert partitions == 2
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "over the quota")

        results = await plane.members[3].controller.auto_create(["beyond"], mutation_quota=exceeded)
        error = results["beyond"]
        assert error is not None and error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert plane.controller._context.topic("beyond") is None
        plane.members[3].metadata.controller_id = -1
        with pytest.raises(KafkaError) as refused:
            await plane.members[3].controller.auto_create(["u"])
        assert refused.value.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("version", range(4))
async def test_controlled_shutdown_in_every_version(version: int) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        await create(plane, (2, 3), name="stays")
        stays = TopicPartition("stays", 0)
        state = await plane.members[2].state(stays)
        alone = IsrChange(stays, state.leader_epoch, state.partition_epoch, (2,))
        await plane.controller.alter_partitions(2, plane.members[2].request_handler.broker_epoch, [alone])
        request = ControlledShutdownRequest(broker_id=2, broker_epoch=plane.members[2].request_handler.broker_epoch)
        response = await plane.members[1].answer(ApiKey.CONTROLLED_SHUTDOWN, request, version)
        assert [(one.topic_name, one.partition_index) for one in response.remaining_partitions] == [("stays", 0)]
        await everybody_believes(plane, 3)
        response = await plane.members[2].answer(ApiKey.CONTROLLED_SHUTDOWN, request, version)
        assert response.error_code == ErrorCode.NOT_CONTROLLER


async def test_broker_that_stops_is_let_go_by_whoever_is_controller() -> None:
    settings = {"controlled.shutdown.retry.backoff.ms": "1", "controlled.shutdown.max.retries": "2"}
    async with ClusterPlane(properties=settings) as plane:
        await create(plane, (2, 1), (1, 2))
        await plane.members[2].control.leave()
        await everybody_believes(plane, 1)
        await plane.members[1].control.leave()
        assert (await plane.members[1].state(T0)).leader == 1, "there is nobody to leave it to"
        plane.members[3].metadata.controller_id = -1
        await plane.members[3].control.leave()


async def test_leaders_have_their_isr_changed_wherever_the_controller_is() -> None:
    async with ClusterPlane() as plane:
        created = await create(plane, (2, 3, 1), (1, 2, 3))
        for leader, partition in ((2, T0), (1, TopicPartition("t", 1))):
            member = plane.members[leader]
            state = await member.state(partition)

            def change(isr: tuple[int, ...], version: int, partition: TopicPartition = partition) -> IsrChange:
                return IsrChange(partition, 0, version, isr, topic_id=created.topic_id)

            narrow = tuple(one for one in (1, 2, 3) if one != 3)
            now = await member.control.isr_changes.submit(change(narrow, state.partition_epoch))
            assert (now.leader, now.isr, now.partition_epoch) == (leader, narrow, state.partition_epoch + 1)
            with pytest.raises(KafkaError) as refused:
                await member.control.isr_changes.submit(change((1, 2, 3), state.partition_epoch))
            assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION


async def test_a_leader_that_writes_its_isr_hears_of_what_it_wrote_without_an_answer() -> None:
    """Repeated after that it is refused, and nobody else would tell: the controller writes in another epoch only."""
    async with ClusterPlane(properties={"inter.broker.protocol.version": "2.6"}) as plane:
        await create(plane, (2, 3, 1))
        leader = plane.members[2]
        notices = cast(Any, leader.control.isr_changes)._cluster
        really = notices.propagate_isr_change

        async def write(*written: Any) -> Any:
            await really(*written)
            raise BadVersionError("as written before")

        notices.propagate_isr_change = write
        now = await leader.control.isr_changes.submit(IsrChange(T0, 0, 0, (2, 3)))
        assert (now.isr, now.partition_epoch) == ((2, 3), 1)


async def test_isr_changes_that_come_together_go_in_one_request() -> None:
    async with ClusterPlane() as plane:
        created = await create(plane, (2, 3), (2, 3), (2, 3), (2, 3))
        changes = [IsrChange(TopicPartition("t", index), 0, 0, (2,), topic_id=created.topic_id) for index in range(4)]
        plane.sent.clear()
        propose = plane.members[2].control.isr_changes.submit
        results = await asyncio.gather(*map(propose, changes))
        assert [one.isr for one in results] == [(2,)] * 4
        asked = [name for _, _, name in plane.sent if name == "AlterPartitionRequest"]
        assert len(asked) == 1
        plane.cut.add(1)
        with pytest.raises(KafkaError):
            await propose(changes[0])


async def test_leaders_of_older_clusters_write_their_isr_themselves() -> None:
    async with ClusterPlane(properties={"inter.broker.protocol.version": "2.6"}) as plane:
        created = await create(plane, (2, 3))
        isr_changes = plane.members[2].control.isr_changes
        change = IsrChange(T0, 0, 0, (2,), topic_id=created.topic_id)
        for wish in (change, change, replace(change, isr=(2, 3))):
            now = await isr_changes.submit(wish)
            assert (now.isr, now.partition_epoch) == ((2,), 1), "it goes on from what is there"
        for refused_change, code in (
            (IsrChange(T0, 7, 1, (2, 3), topic_id=created.topic_id), ErrorCode.FENCED_LEADER_EPOCH),
            (
                IsrChange(TopicPartition("u", 0), 0, 0, (2,), topic_id=created.topic_id),
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ),
        ):
            with pytest.raises(KafkaError) as refused:
                await isr_changes.submit(refused_change)
            assert refused.value.code is code
        await plane.until(lambda: _believed_isr(plane.members[3]) == (2,))
        assert not any(name == "AlterPartitionRequest" for _, _, name in plane.sent)


def _believed_isr(member: Member) -> tuple[int, ...]:
    image = member.metadata.partition(T0)
    return () if image is None else image.isr


@pytest.mark.parametrize(
    ("version", "asks"),
    [("3.9-IV0", True), ("2.7", True), ("2.7-IV2", True), ("2.7-IV1", False), ("0.10.0-IV1", False)],
)
def test_since_when_the_controller_is_asked(version: str, asks: bool) -> None:
    assert is_at_least(version, SINCE_ALTER_PARTITION) is asks


@pytest.mark.parametrize(
    ("protocol", "leader_and_isr", "update_metadata", "stop_replica", "alter_partition"),
    [
        ("0.8.2.0", 0, 0, 0, None), ("0.9.0", 0, 1, 0, None), ("0.10.0-IV1", 0, 2, 0, None),
        ("0.10.2-IV0", 0, 3, 0, None), ("1.0-IV0", 1, 4, 0, None), ("2.1", 1, 4, 0, None), ("2.2-IV0", 2, 5, 1, None),
        ("2.4-IV0", 3, 5, 1, None), ("2.4-IV1", 4, 6, 2, None), ("2.6-IV0", 4, 6, 3, None), ("2.7", 4, 6, 3, 1),
        ("2.8-IV0", 4, 6, 3, 1), ("2.8-IV1", 5, 7, 3, 3), ("3.2-IV0", 6, 7, 3, 3), ("3.4-IV0", 7, 8, 4, 3),
        ("3.9-IV0", 7, 8, 4, 3),
    ],
)  # fmt: skip
async def test_orders_are_as_the_oldest_broker_understands_them(
    protocol: str, leader_and_isr: int, update_metadata: int, stop_replica: int, alter_partition: int | None
) -> None:
    properties = {"inter.broker.protocol.version": protocol, "log.message.format.version": protocol}
    async with ClusterPlane(properties=properties) as plane:
        await create(plane, (2, 3))
        leader = plane.members[2]
        await plane.until(lambda: leader.leads(T0) and T0 in plane.members[3].replicas.roles)
        order = leader.replicas.roles[T0]
        # With the topic id that the order came with, or without one.
        change = IsrChange(T0, order.leader_epoch, order.partition_epoch, (2,), topic_id=order.topic_id)
        assert (await leader.control.isr_changes.submit(change)).isr == (2,)
        await plane.until(lambda: _believed_isr(plane.members[3]) == (2,))
        assert await plane.controller.delete_topics(["t"]) == {"t": None}
        assert plane.members[3].replicas.deleted == [T0]
        sent = {key: max(versions) for key, versions in plane.spoken.items()}
        assert sent[ApiKey.LEADER_AND_ISR] == leader_and_isr
        assert sent[ApiKey.UPDATE_METADATA] == update_metadata
        assert sent[ApiKey.STOP_REPLICA] == stop_replica
        assert sent.get(ApiKey.ALTER_PARTITION) == alter_partition


async def test_a_broker_that_comes_is_told_of_some_partitions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def noted(*args: Any, **options: Any) -> Any:
        request = update_metadata_request(*args, **options)
        told.append(sum(len(topic.partition_states) for topic in request.topic_states))
        return request

    async with ClusterPlane() as plane:
        await create(plane, *[(1, 2)] * 700, name="t")
        await create(plane, *[(2, 3)] * 400, name="u")
        monkeypatch.setattr(controller_channel_manager, "update_metadata_request", noted)
        newcomer = await plane.start(4)
        await plane.until(lambda: newcomer.metadata.partition(TopicPartition("u", 399)) is not None)
        assert len(newcomer.metadata.topic("t").partitions) == 700  # type: ignore[union-attr]
        assert max(told) == 500 and sum(told) == 1100


async def test_a_broker_that_was_away_forgets_what_is_not_in_the_store_and_nothing_else() -> None:
    """An Apache Kafka's controller tells only of partitions that have a leader."""
    async with ClusterPlane() as plane:
        await create(plane, (2, 3), name="leaderless")
        await create(plane, (2, 3), name="t")
        member = plane.members[2]
        image = member.metadata.topic("t")
        assert image is not None
        member.metadata.put_topics([TopicImage("deleted", UUID(int=9), image.partitions)])
        removed: list[str] = []
        member.metadata.on_topics_removed.append(removed.extend)
        member.request_handler.registered(member.request_handler.broker_epoch)
        update = MetadataUpdate(tuple(member.metadata.brokers.values()), (image,))
        epoch = member.request_handler.controller_epoch
        await member.request_handler.update_metadata(update, controller_id=1, controller_epoch=epoch, broker_epoch=-1)
        assert removed == ["deleted"]
        assert {"leaderless", "t"} <= set(member.metadata.topic_names)


async def test_a_controller_that_knows_no_broker_epochs_is_asked_without_them() -> None:
    def pick(key: int, highest: int, lowest: int) -> int:
        return min(highest, 2) if key == ApiKey.ALTER_PARTITION else highest

    async with ClusterPlane(versions=pick) as plane:
        await create(plane, (2, 3))
        await plane.until(lambda: plane.members[2].leads(T0))
        order = plane.members[2].replicas.roles[T0]
        change = IsrChange(T0, order.leader_epoch, order.partition_epoch, (2,), (7,), topic_id=order.topic_id)
        assert (await plane.members[2].control.isr_changes.submit(change)).isr == (2,)
        assert plane.spoken[ApiKey.ALTER_PARTITION] == {2}


@pytest.mark.parametrize("version", range(4))
async def test_alter_partition_in_every_version(version: int) -> None:
    async with ClusterPlane() as plane:
        created = await create(plane, (2, 3, 1))
        leader = plane.members[2]
        asked = [
            PartitionData(
                partition_index=0,
                leader_epoch=0,
                new_isr=[2, 3],
                new_isr_with_epochs=[
                    BrokerState(broker_id=one, broker_epoch=plane.members[one].request_handler.broker_epoch)
                    for one in (2, 3)
                ],
            ),
            PartitionData(partition_index=9),
        ]
        request = AlterPartitionRequest(
            broker_id=2,
            broker_epoch=leader.request_handler.broker_epoch,
            topics=[
                AlterTopic(topic_name="t", topic_id=created.topic_id, partitions=asked),
                AlterTopic(topic_name="u", topic_id=UUID(int=7), partitions=[PartitionData(partition_index=0)]),
            ],
        )
        response = await plane.members[1].answer(ApiKey.ALTER_PARTITION, request, version)
        assert response.error_code == ErrorCode.NONE
        (changed, unknown), (elsewhere,) = (topic.partitions for topic in response.topics)
        assert (changed.error_code, changed.leader_id, changed.isr, changed.partition_epoch) == (0, 2, [2, 3], 1)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        by_name, by_id = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
        assert elsewhere.error_code == (by_name if version < 2 else by_id)
        await plane.kill(1)
        await plane.until(lambda: any(one.controller.is_active for one in plane.members.values()))
        asked[0].new_isr.append(1)
        asked[0].new_isr_with_epochs.append(BrokerState(broker_id=1))
        del asked[1:], request.topics[1:]
        state = await leader.state(T0)
        asked[0].leader_epoch, asked[0].partition_epoch = state.leader_epoch, state.partition_epoch
        active = next(one for one in plane.members.values() if one.controller.is_active)
        response = await active.answer(ApiKey.ALTER_PARTITION, request, version)
        old, new = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA
        assert response.topics[0].partitions[0].error_code == (old if version < 2 else new)


async def test_who_has_just_become_controller_looks_for_a_topic_when_its_term_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ClusterPlane() as plane:
        created = await create(plane, (2, 3, 1))
        chief, leader = plane.members[1], plane.members[2]
        known, alter = chief.metadata.topic("t"), chief.controller.alter_partitions
        assert known is not None
        chief.metadata.remove_topics(["t"])

        async def begin(*asked: Any) -> Any:
            chief.metadata.put_topics([known])
            return await alter(*asked)

        monkeypatch.setattr(chief.controller, "alter_partitions", begin)
        asked = PartitionData(partition_index=0, new_isr_with_epochs=[BrokerState(broker_id=2)])
        topic = AlterTopic(topic_id=created.topic_id, partitions=[asked])
        request = AlterPartitionRequest(broker_id=2, broker_epoch=leader.request_handler.broker_epoch, topics=[topic])
        response = await chief.answer(ApiKey.ALTER_PARTITION, request, 3)
        (answer,) = response.topics[0].partitions
        assert (answer.error_code, answer.isr) == (ErrorCode.NONE, [2])


async def test_producer_ids_are_given_out_in_blocks_by_the_controller_alone() -> None:
    async with ClusterPlane() as plane:
        epoch = plane.members[3].request_handler.broker_epoch
        request = AllocateProducerIdsRequest(broker_id=3, broker_epoch=epoch)
        first = await plane.members[3].ask(1, request)
        second = await plane.members[3].ask(1, request)
        assert (first.error_code, first.producer_id_len) == (ErrorCode.NONE, 1000)
        assert second.producer_id_start == first.producer_id_start + 1000
        assert await plane.members[3].producer_ids.generate_producer_id() >= second.producer_id_start + 1000
        assert plane.sent[-1] == (3, 1, "AllocateProducerIdsRequest")
        assert await plane.members[1].producer_ids.generate_producer_id() >= second.producer_id_start + 2000
        plane.cut.add(1)
        assert await plane.members[2].producer_ids.generate_producer_id() >= second.producer_id_start + 3000
        plane.cut.clear()
        for to, broker_id, broker_epoch, code in (
            (2, 3, epoch, ErrorCode.NOT_CONTROLLER),
            (1, 3, epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
            (1, 8, epoch, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ):
            request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
            assert (await plane.members[3].ask(to, request)).error_code == code


@pytest.mark.parametrize("version", range(8))
async def test_leader_and_isr_in_every_version(version: int) -> None:
    async with ClusterPlane() as plane:
        member, t0, topic_id = plane.members[3], TopicPartition("x", 0), UUID(int=5)
        state = LeaderAndIsrPartitionState(
            topic_name="x", partition_index=0, leader=3, leader_epoch=4, isr=[3], replicas=[3, 1]
        )
        elsewhere = LeaderAndIsrPartitionState(topic_name="x", partition_index=1, leader=1, replicas=[1])
        request = LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=1,
            broker_epoch=member.request_handler.broker_epoch,
            ungrouped_partition_states=[state, elsewhere] if version < 2 else [],
            topic_states=[
                LeaderAndIsrTopicState(topic_name="x", topic_id=topic_id, partition_states=[state, elsewhere])
            ],
        )
        if version < 2:
            request.topic_states.clear()
        for expected in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH):
            response = await plane.members[1].ask_in(3, request, version)
            errors = response.partition_errors if version < 5 else response.topics[0].partition_errors
            assert response.error_code == ErrorCode.NONE
            assert [one.error_code for one in errors] == [expected, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert member.leads(t0)
        request.controller_epoch = 0
        assert (await plane.members[1].ask_in(3, request, version)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("version", range(5))
async def test_stop_replica_in_every_version(version: int) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (3, 1), (3, 1))
        member = plane.members[3]
        await plane.until(lambda: len(member.replicas.roles) == 2)
        request = StopReplicaRequest(controller_epoch=1, broker_epoch=member.request_handler.broker_epoch)
        if version == 0:
            request.ungrouped_partitions = [StopReplicaPartitionV0(topic_name="t", partition_index=0)]
        elif version < 3:
            request.topics = [StopReplicaTopicV1(name="t", partition_indexes=[0])]
        else:
            states = [
                StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=True),
                StopReplicaPartitionState(partition_index=1, leader_epoch=-1),
            ]
            request.topic_states = [StopReplicaTopicState(topic_name="t", partition_states=states)]
        request.delete_partitions = version < 3
        response = await plane.members[1].ask_in(3, request, version)
        assert [one.error_code for one in response.partition_errors] == [ErrorCode.NONE] * (1 if version < 3 else 2)
        assert member.replicas.deleted == [T0]
        assert len(member.replicas.roles) == (1 if version < 3 else 0)


async def test_replica_of_a_newer_epoch_is_not_stopped() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (3, 1))
        member = plane.members[3]
        await plane.until(lambda: member.leads(T0))
        await plane.controller.elect_leaders([T0], allow_unclean=False)
        order = LeaderAndIsrState(T0, member.replicas.roles[T0].topic_id, 3, 6, 0, (3, 1), (3, 1), is_new=False)
        await member.request_handler.leader_and_isr([order], controller_epoch=1)
        stops = [StopReplicaState(T0, 5, delete=True)]
        assert await member.request_handler.stop_replicas(stops, controller_epoch=1) == {
            T0: ErrorCode.FENCED_LEADER_EPOCH
        }
        other = LeaderAndIsrState(T0, UUID(int=1), 3, 7, 0, (3, 1), (3, 1), is_new=False)
        results = await member.request_handler.leader_and_isr([other], controller_epoch=1)
        assert results == {T0: ErrorCode.INCONSISTENT_TOPIC_ID}
        assert member.leads(T0)


async def test_a_broker_that_nothing_is_told_of_has_no_endpoint() -> None:
    """Version 0 says of each where it is; the others say so of each listener, or of none."""
    told = [UpdateMetadataBroker(id=1), UpdateMetadataBroker(id=2, v0_host="h", v0_port=9)]
    update = await metadata_update(UpdateMetadataRequest(live_brokers=told))
    assert [[(one.host, one.port) for one in broker.endpoints] for broker in update.brokers] == [[], [("h", 9)]]


@pytest.mark.parametrize("version", range(9))
async def test_update_metadata_in_every_version(version: int) -> None:
    async with ClusterPlane() as plane:
        member = plane.members[3]
        states = [
            UpdateMetadataPartitionState(topic_name="x", partition_index=index, leader=leader, replicas=[1], isr=[1])
            for index, leader in enumerate((1, 1))
        ]
        broker = UpdateMetadataBroker(
            id=1,
            v0_host="h",
            v0_port=9,
            endpoints=[UpdateMetadataEndpoint(host="h", port=9, listener="PLAINTEXT" if version >= 3 else "")],
            rack="r" if version >= 2 else None,
        )
        request = UpdateMetadataRequest(controller_id=2, controller_epoch=1, live_brokers=[broker])

        def place(chosen: list[UpdateMetadataPartitionState]) -> None:
            if version < 5:
                request.ungrouped_partition_states = chosen
            else:
                topic = UpdateMetadataTopicState(topic_name="x", topic_id=UUID(int=5), partition_states=chosen)
                request.topic_states = [topic]

        place(states)
        assert (await plane.members[1].ask_in(3, request, version)).error_code == ErrorCode.NONE
        assert member.metadata.controller_id == 2
        endpoint = member.metadata.endpoint(1, "PLAINTEXT")
        assert endpoint is not None
        assert (endpoint.host, endpoint.port) == ("h", 9)
        image = member.metadata.topic("x")
        assert image is not None
        assert len(image.partitions) == 2
        for left, index in ((1, 0), (0, 1)):
            states[index].leader = -2
            place([states[index]])
            await plane.members[1].ask_in(3, request, version)
            image = member.metadata.topic("x")
            assert (0 if image is None else len(image.partitions)) == left


async def test_who_was_controller_knows_the_runs_of_others_no_longer() -> None:
    """Followers that come back with another epoch would be taken for their own former runs, and never be in sync."""
    async with ClusterPlane() as plane:
        former = next(one for one in plane.members.values() if one.controller is plane.controller)
        known = former.metadata.brokers
        assert all(one.broker_epoch > -1 for one in known.values())
        update = MetadataUpdate(tuple(replace(one, broker_epoch=-1) for one in known.values()))
        epoch = former.request_handler.controller_epoch + 1
        await former.request_handler.update_metadata(update, controller_id=2, controller_epoch=epoch, broker_epoch=-1)
        assert {one.broker_epoch for one in former.metadata.brokers.values()} == {-1}


async def test_a_controller_steps_down_when_a_newer_one_gives_orders() -> None:
    """What it shows to clients of its own broker afterwards would stay, as the newer one has told its news."""
    async with ClusterPlane() as plane:
        former = plane.members[1]
        update, epoch = MetadataUpdate(tuple(former.metadata.brokers.values())), former.controller.controller_epoch + 1
        await former.request_handler.update_metadata(update, controller_id=2, controller_epoch=epoch, broker_epoch=-1)
        assert not former.controller.is_active


async def test_every_broker_knows_the_settings_a_topic_was_made_with() -> None:
    """Also one that has no replica: it is asked for them, and elects by them when it becomes controller."""
    async with ClusterPlane() as plane:
        await create(plane, (1,), **{"unclean.leader.election.enable": "true"})
        known = [one.dynamic_config for one in plane.members.values()]
        await plane.until(lambda: all(one.topic_config("t") for one in known))
        wanted = {"unclean.leader.election.enable": "true"}
        assert all(one.topic_config("t") == wanted for one in known)


async def test_a_topic_that_another_broker_has_written_comes_to_life() -> None:
    """Apache Kafka's brokers write what is created automatically into the tree themselves, with its settings."""
    async with ClusterPlane() as plane:
        writer = plane.members[2]
        wanted = {"cleanup.policy": "compact"}
        await writer.config_store.set_topic_config("t", wanted)
        registration = TopicRegistration("t", UUID(int=7), {0: (2, 3), 1: (3, 2)})
        await writer.store.create(znodes.topic_path("t"), znodes.encode_topic(registration))
        await everybody_believes(plane, 2)
        await everybody_believes(plane, 3, TopicPartition("t", 1))
        assert (await writer.state(T0)).isr == (2, 3)
        assert [one.dynamic_config.topic_config("t") for one in plane.members.values()] == [wanted] * 3


async def test_a_new_controller_knows_the_settings_of_topics_that_it_was_not_told_of() -> None:
    async with ClusterPlane() as plane:
        plane.cut.update({2, 3})
        wanted = {"unclean.leader.election.enable": "true"}
        await plane.controller.create_topics([TopicCreation("t", assignments=[(0, (1,))], config=wanted)])
        await plane.kill(1)
        plane.cut.clear()
        await plane.until(lambda: any(one.controller.is_active for one in plane.members.values()))
        active = next(one for one in plane.members.values() if one.controller.is_active)
        await plane.until(lambda: active.dynamic_config.topic_config("t") == wanted)
