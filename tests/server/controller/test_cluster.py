"""Controllers of several brokers over one tree: elections, failover, requests, and what every broker believes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.server.cluster_plane import ClusterPlane, Member
from tests.server.controller.topics_in_cluster import T0, create, everybody_believes, leader_of, propose

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller import controller_elector, remote_controller
from barnabas.server.controller.admin_manager import CreatedTopic, PartitionsCreation, TopicCreation
from barnabas.server.metadata import znodes
from barnabas.server.metadata.cluster_store import ControllerTerm
from barnabas.server.metadata.metadata_store import (
    BadVersionError,
    MetadataStore,
    NoNodeError,
    SessionExpiredError,
    StoreError,
    StoreUnavailableError,
    Watch,
)
from barnabas.server.metadata.topic_store import TopicStore
from barnabas.server.metadata.znodes import NO_LEADER, LeaderIsrAndControllerEpoch, TopicRegistration
from barnabas.server.replication.leader_and_isr import IsrChange

# Terms


async def test_one_is_controller_and_all_know_who_and_each_other() -> None:
    async with ClusterPlane() as plane:
        assert [one.controller.is_active for one in plane.members.values()] == [True, False, False]
        for member in plane.members.values():
            assert member.metadata.controller_id == 1
            assert list(member.metadata.brokers) == [1, 2, 3]
        with pytest.raises(KafkaError) as refused:
            await plane.members[2].controller.create_topics([TopicCreation("x", 1, 1)])
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        with pytest.raises(KafkaError) as refused:
            plane.members[2].controller.list_partition_reassignments()
        assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_created_topic_is_led_followed_and_shown_everywhere() -> None:
    async with ClusterPlane() as plane:
        created = await create(plane, (1, 2, 3), (2, 3, 1), (3, 1, 2), **{"retention.ms": "7"})
        await everybody_believes(plane, 1)
        await plane.until(lambda: all(len(one.replicas.roles) == 3 for one in plane.members.values()))
        for member in plane.members.values():
            image = member.metadata.topic("t")
            assert image is not None
            assert image.topic_id == created.topic_id
            assert [one.leader for one in image.partitions.values()] == [1, 2, 3]
            assert member.leads(TopicPartition("t", member.broker_id - 1))
            assert member.dynamic_config.topic_log_config("t").retention_ms == 7


@pytest.mark.parametrize("versions", ["lowest", "highest"])
async def test_orders_are_understood_in_old_and_new_versions(versions: str) -> None:
    def pick(key: int, highest: int, lowest: int) -> int:
        return highest if versions == "highest" else lowest

    async with ClusterPlane(versions=pick) as plane:
        await create(plane, (2, 3))
        await everybody_believes(plane, 2)
        await plane.until(lambda: plane.members[2].leads(T0) and T0 in plane.members[3].replicas.roles)
        assert await plane.controller.delete_topics(["t"]) == {"t": None}
        assert plane.tree.exists("/brokers/topics/t", plane.members[1].store.session_id) is None
        assert plane.members[3].replicas.deleted == [T0]
        assert all("t" not in one.metadata for one in plane.members.values())


async def test_failover_goes_on_from_the_tree_alone() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 2, 3))
        await everybody_believes(plane, 1)
        await plane.kill(1)
        await plane.until(lambda: plane.members[2].controller.is_active or plane.members[3].controller.is_active)
        epoch = plane.controller.controller_epoch
        assert epoch == 2
        await everybody_believes(plane, 2)
        await plane.until(lambda: plane.members[2].leads(T0))
        state = await plane.members[2].state(T0)
        assert (state.leader, state.isr, state.controller_epoch) == (2, (2, 3), epoch)
        assert all(1 not in one.metadata.brokers for one in plane.members.values())
        await create(plane, (3, 2), name="u")
        back = await plane.start(1)
        await plane.until(lambda: back.metadata.topic("u") is not None and leader_of(back) == 2)
        await plane.until(lambda: T0 in back.replicas.roles and back.replicas.roles[T0].leader == 2)
        assert (await back.state(T0)).isr == (2, 3), "it has to catch up first"


async def test_what_a_deposed_controller_began_is_refused_by_the_store() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 2, 3))
        old = plane.controller
        session = plane.members[2].store
        await session.delete("/controller")
        # Nobody has told it yet: it is a controller as far as it knows.
        assert old.is_active
        assert await plane.members[2].cluster_store.claim_controller(2) is not None
        refused = (await old.create_partitions([PartitionsCreation("t", 2)]))["t"]
        assert refused is not None
        assert refused.code is ErrorCode.NOT_CONTROLLER
        await plane.until(lambda: not old.is_active)
        topic = await plane.members[2].topic_store.topic("t")
        assert topic is not None
        assert len(topic.assignment) == 1


async def test_orders_of_an_older_controller_or_to_an_older_run_are_refused() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 2))
        await plane.until(lambda: T0 in plane.members[2].replicas.roles)
        handler = plane.members[2].request_handler
        for epochs, code in (
            ({"controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH),
            ({"controller_epoch": 9, "broker_epoch": handler.broker_epoch - 1}, ErrorCode.STALE_BROKER_EPOCH),
        ):
            with pytest.raises(KafkaError) as refused:
                await handler.leader_and_isr([], **epochs)
            assert refused.value.code is code
        assert handler.controller_epoch == 1


# Brokers come and go


async def test_leaders_of_a_dead_broker_are_replaced_and_it_leaves_the_isr() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (3, 2, 1), (1, 3, 2))
        await everybody_believes(plane, 3)
        await plane.kill(3)
        await everybody_believes(plane, 2)
        t1 = TopicPartition("t", 1)
        await plane.until_true(lambda: _isr_is(plane, t1, (1, 2)))
        assert (await plane.members[1].state(T0)).leader_epoch == 1
        assert (await plane.members[1].state(t1)).leader == 1


async def _isr_is(plane: ClusterPlane, partition: TopicPartition, isr: tuple[int, ...]) -> bool:
    return (await plane.members[1].state(partition)).isr == isr


@pytest.mark.parametrize(("restarted", "leader"), [((2,), 3), ((2, 3), 4), ((2, 3, 4), 2), ((3,), 2)])
async def test_a_leader_that_restarted_unseen_is_followed_by_who_ran_on(
    restarted: tuple[int, ...], leader: int
) -> None:
    """It may have lost what is committed, and lead others to cut it off; where all have restarted nobody is better."""
    async with ClusterPlane(brokers=4) as plane:
        await create(plane, (2, 3, 4))
        await everybody_believes(plane, 2)
        former = await plane.members[2].state(T0)
        async with plane.controller._change_lock:  # the controller does not get to see any of it
            for broker in restarted:
                await plane.kill(broker)
                await plane.start(broker)
            await plane.kill(1)
        await plane.until(lambda: any(one.controller.is_active for one in plane.members.values()))
        await everybody_believes(plane, leader)
        state = await plane.members[2].state(T0)
        assert (state.leader, state.isr) == (leader, (2, 3, 4))
        assert state.leader_epoch == former.leader_epoch + (2 in restarted)


async def test_last_in_sync_replica_is_waited_for_unless_loss_is_allowed() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (3, 2))
        await create(plane, (3, 2), name="u", **{"unclean.leader.election.enable": "true"})
        u0 = TopicPartition("u", 0)
        await plane.until(lambda: plane.members[3].leads(T0))
        for partition in (T0, u0):
            state = await plane.members[3].state(partition)
            proposal = IsrChange(partition, state.leader_epoch, state.partition_epoch, (3,))
            await plane.controller.alter_partitions(3, plane.members[3].request_handler.broker_epoch, [proposal])
        await plane.kill(3)
        await everybody_believes(plane, 2, u0)
        await everybody_believes(plane, NO_LEADER)
        assert (await plane.members[1].state(T0)).isr == (3,)
        unclean = await plane.members[1].state(u0)
        assert (unclean.isr, unclean.leader_recovery_state) == ((2,), 1)
        results = await plane.controller.elect_leaders([T0], allow_unclean=False)
        assert results[T0] is not None
        await plane.start(3)
        await everybody_believes(plane, 3)


async def test_a_leader_epoch_is_bumped_only_where_the_leader_or_the_isr_changes() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 2), (2, 3), (3, 2), (2, 1))
        await everybody_believes(plane, 1)
        places = [TopicPartition("t", index) for index in range(4)]
        before = [await plane.members[1].state(place) for place in places]
        await plane.kill(3)
        await plane.until_true(lambda: _isr_is(plane, places[1], (2,)))
        after = [await plane.members[1].state(place) for place in places]
        assert [new.leader_epoch - old.leader_epoch for old, new in zip(before, after, strict=True)] == [0, 1, 1, 0]
        await plane.start(3)
        await plane.until(lambda: places[1] in plane.members[3].replicas.roles)
        back = [await plane.members[1].state(place) for place in places]
        assert [state.leader_epoch for state in back] == [state.leader_epoch for state in after]


async def test_a_replica_that_is_tried_again_leaves_the_leaders_epoch_as_it_is() -> None:
    async with ClusterPlane() as plane:
        controlling = plane.members[1]
        controlling.replicas.failing.add(T0)
        await create(plane, (2, 1))
        await everybody_believes(plane, 2)
        await plane.until(lambda: _offline(plane.members[3]) == (1,))
        before = await controlling.state(T0)
        controlling.replicas.failing.clear()
        await plane.controller.retry_replicas(1, lost=())
        assert controlling.replicas.roles[T0].leader == 2
        assert (await controlling.state(T0)).leader_epoch == before.leader_epoch


async def test_a_partition_in_its_last_leader_epoch_keeps_no_other_from_its_leader() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (3, 2), (3, 2))
        await everybody_believes(plane, 3)
        context, other = plane.controller._context, TopicPartition("t", 1)
        state = context.leadership_info(T0)
        assert state is not None
        context.put_leadership_info(T0, replace(state, leader_epoch=2**31 - 1))
        await plane.kill(3)
        await plane.until(lambda: leader_of(plane.members[1], other) == 2)
        assert plane.controller.is_active
        assert (await plane.members[1].state(T0)).leader == 3


async def test_controlled_shutdown_moves_leaders_and_says_what_cannot_move() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3), (1, 2))
        await create(plane, (2,), name="alone")
        await everybody_believes(plane, 2)
        await plane.until(lambda: len(plane.members[2].replicas.roles) == 3)
        epoch = plane.members[2].request_handler.broker_epoch
        with pytest.raises(KafkaError) as refused:
            await plane.controller.controlled_shutdown(2, epoch - 1)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        with pytest.raises(KafkaError) as refused:
            await plane.controller.controlled_shutdown(7, -1)
        assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        assert await plane.controller.controlled_shutdown(2, epoch) == []
        await everybody_believes(plane, 3)
        assert (await plane.members[1].state(T0)).isr == (3,)
        assert (await plane.members[1].state(TopicPartition("t", 1))).isr == (1,)
        # What has no other replica is led until the end.
        await plane.until(lambda: list(plane.members[2].replicas.roles) == [TopicPartition("alone", 0)])
        assert plane.members[2].replicas.deleted == []
        assert await propose(plane, 3, (3, 2)) is ErrorCode.INELIGIBLE_REPLICA
        await plane.kill(2)
        await plane.start(2)
        await plane.until(lambda: T0 in plane.members[2].replicas.roles)
        result = await propose(plane, 3, (3, 2))
        assert isinstance(result, LeaderIsrAndControllerEpoch)


async def test_orders_to_a_broker_that_does_not_answer_are_repeated_until_it_does() -> None:
    async with ClusterPlane() as plane:
        plane.cut.add(3)
        await plane.controller.create_topics([TopicCreation("t", assignments=[(0, (3, 2))])])
        await plane.until(lambda: T0 in plane.members[2].replicas.roles)
        asked = len(plane.sent)
        await plane.until(lambda: len(plane.sent) > asked + 1)
        assert T0 not in plane.members[3].replicas.roles
        plane.cut.clear()
        await plane.until(lambda: plane.members[3].leads(T0))
        await everybody_believes(plane, 3)


async def test_who_made_a_topic_can_wait_until_all_live_brokers_have_heard_of_it() -> None:
    async with ClusterPlane() as plane:
        await plane.controller.create_topics([TopicCreation("t", assignments=[(0, (2, 3))])])
        await plane.controller._channel.wait_for_responses(60)
        assert [leader_of(one) for one in plane.members.values()] == [2, 2, 2]
        assert plane.members[2].leads(T0)
        plane.cut.add(3)
        await plane.controller.create_topics([TopicCreation("u", assignments=[(0, (2, 3))])])
        await plane.controller._channel.wait_for_responses(0.01)
        assert "u" not in plane.members[3].metadata
        waiting = asyncio.ensure_future(plane.controller._channel.wait_for_responses(3600))
        await plane.until(lambda: "u" in plane.members[2].metadata)
        assert not waiting.done()
        await plane.kill(3)
        async with asyncio.timeout(60):
            await waiting


async def test_replica_that_cannot_be_made_on_another_broker_does_not_lead() -> None:
    async with ClusterPlane() as plane:
        plane.members[2].replicas.failing.add(T0)
        await plane.controller.create_topics([TopicCreation("t", assignments=[(0, (2, 3))])])
        await everybody_believes(plane, 3)
        image = plane.members[3].metadata.partition(T0)
        assert image is not None
        assert image.offline_replicas == (2,)
        assert (await plane.members[1].state(T0)).isr == (3,)


async def test_replica_without_room_on_another_broker_is_made_when_there_is() -> None:
    """No restart is needed, and the controller is not asked all the time."""
    async with ClusterPlane() as plane:
        member, alone = plane.members[2], TopicPartition("alone", 0)
        member.replicas.failing |= {T0, alone}
        wishes = [TopicCreation("t", assignments=[(0, (2, 3))]), TopicCreation("alone", assignments=[(0, (2,))])]
        await plane.controller.create_topics(wishes)
        await everybody_believes(plane, 3)
        told = await count_notices(plane, member, rounds=20)
        assert told == 4, "in rounds 1, 3, 7 and 15"
        assert T0 not in member.replicas.roles
        member.replicas.failing.clear()
        await tried_again(member)
        await plane.until(lambda: member.leads(alone))
        await plane.until(lambda: not member.request_handler.lacks_replicas)
        # The member's response has to reach the controller.
        await plane.until(lambda: 2 in plane.controller._context.live_replicas(T0))
        state = await propose(plane, 3, (3, 2))
        assert isinstance(state, LeaderIsrAndControllerEpoch) and state.isr == (3, 2), "it may be in sync again"
        await plane.until(lambda: _offline(plane.members[3]) == ())


async def test_replica_that_was_made_before_its_failure_is_processed_is_online() -> None:
    """The report of the failure waits for its turn while the replica is retried."""
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        controller = plane.controller
        async with controller._change():
            controller.on_replicas_offline(2, [T0])
            controller.on_replicas_created(2, [T0])
        await plane.until(lambda: not controller._events)
        assert controller._context.live_replicas(T0) == [2, 3]


async def test_replica_that_could_not_take_an_order_is_ordered_again() -> None:
    """It was there before: an order may have something to be written, too."""
    async with ClusterPlane() as plane:
        member = plane.members[2]
        await create(plane, (2, 3))
        member.replicas.failing.add(T0)
        assert await plane.controller.alter_partition_reassignments({T0: (3, 2)}) == {T0: None}
        assert await plane.controller.elect_leaders([T0], allow_unclean=False) == {T0: None}
        await plane.until(lambda: _offline(plane.members[3]) == (2,))
        member.replicas.failing.clear()
        del member.replicas.roles[T0]
        await tried_again(member)
        assert member.replicas.roles[T0].leader == 3
        await plane.until(lambda: not member.request_handler.lacks_replicas)


async def test_replica_without_room_on_another_broker_is_deleted_when_there_is() -> None:
    async with ClusterPlane() as plane:
        member = plane.members[2]
        member.replicas.failing.add(T0)
        await plane.controller.create_topics([TopicCreation("t", assignments=[(0, (2, 3))])])
        await everybody_believes(plane, 3)
        assert (await plane.controller.delete_topics(["t"]))["t"] is not None
        assert member.request_handler.lacks_replicas
        member.replicas.failing.clear()
        await member.control.retry_replicas()
        await plane.until(lambda: not member.request_handler.lacks_replicas)
        await plane.until(lambda: plane.controller._context.topic("t") is None)


async def test_who_has_all_replicas_or_has_lost_them_does_not_ask_for_them() -> None:
    async with ClusterPlane() as plane:
        member = plane.members[2]
        await create(plane, (2, 3))
        assert not member.request_handler.lacks_replicas
        member.replicas.failing.add(TopicPartition("u", 0))
        await plane.controller.create_topics([TopicCreation("u", assignments=[(0, (2, 3))])])
        await everybody_believes(plane, 3, TopicPartition("u", 0))
        assert member.request_handler.lacks_replicas
        member.offline.add(TopicPartition("u", 0))
        assert await count_notices(plane, member, rounds=5) == 0


async def tried_again(member: Member) -> None:
    """Rounds go by until the broker has its replica of T0."""
    async with asyncio.timeout(60):
        while T0 not in member.replicas.roles:
            await member.control.retry_replicas()
            await asyncio.sleep(0)


def _offline(member: Member) -> tuple[int, ...]:
    image = member.metadata.partition(T0)
    return (-1,) if image is None else image.offline_replicas


async def count_notices(plane: ClusterPlane, member: Member, rounds: int) -> int:
    """How often a broker leaves word in so many rounds; each is dealt with before the next."""
    elsewhere, store, told = member.control._remote_controller, plane.members[1].store, 0
    really = elsewhere.write_log_dir_event

    async def tell(broker_id: int) -> None:
        nonlocal told
        told += 1
        await really(broker_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elsewhere, "write_log_dir_event", tell)
        for _ in range(rounds):
            await member.control.retry_replicas()
            await plane.until_true(lambda: _is_empty(store, znodes.LOG_DIR_EVENTS))
    return told


async def test_failed_log_dir_of_another_broker_is_heard_of_through_the_tree() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        await plane.until(lambda: plane.members[2].leads(T0))
        plane.members[2].offline.add(T0)
        await plane.members[2].controller.on_replicas_become_offline(2, [T0])
        await everybody_believes(plane, 3)
        store = plane.members[1].store
        await plane.until_true(lambda: _is_empty(store, znodes.LOG_DIR_EVENTS))


async def test_notices_that_say_nothing_keep_no_others_back() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        await plane.until(lambda: plane.members[2].leads(T0))
        store = plane.members[1].store
        for prefix in (znodes.LOG_DIR_EVENT_PREFIX, znodes.ISR_CHANGE_PREFIX):
            await store.create(prefix, b"what?", sequential=True)
        plane.members[2].offline.add(T0)
        await plane.members[2].controller.on_replicas_become_offline(2, [T0])
        await everybody_believes(plane, 3)
        await plane.until_true(lambda: _is_empty(store, znodes.LOG_DIR_EVENTS))
        await plane.until_true(lambda: _is_empty(store, znodes.ISR_CHANGES))


async def test_failed_log_dir_is_told_as_soon_as_the_tree_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's session ends while the ensemble is away, and nobody else would ever ask."""
    monkeypatch.setattr(remote_controller, "RETRY_SECONDS", 0.0)
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        await plane.until(lambda: plane.members[2].leads(T0))
        member, attempts = plane.members[2], 0

        async def unavailable(path: str, *_: object, **__: Any) -> str:
            nonlocal attempts
            attempts += 1
            raise StoreUnavailableError(path)

        member.offline.add(T0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(member.store, "create", unavailable)
            member.controller.on_replicas_offline(2, [T0])
            await plane.until(lambda: attempts > 2)
        await everybody_believes(plane, 3)


async def _is_empty(store: MetadataStore, path: str) -> bool:
    return await store.children(path) == []


# In-sync replicas


async def test_isr_is_changed_by_its_leader_through_the_controller() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3, 1))
        state = await plane.members[2].state(T0)
        shrunk = await propose(plane, 2, (2, 3))
        assert isinstance(shrunk, LeaderIsrAndControllerEpoch)
        assert shrunk == await plane.members[2].state(T0)
        assert (shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == ((2, 3), 0, state.partition_epoch + 1)
        again = await propose(plane, 2, (2, 3))
        assert again == shrunk
        grown = await propose(plane, 2, (2, 3, 1))
        assert isinstance(grown, LeaderIsrAndControllerEpoch)
        await plane.until(lambda: _believed_isr(plane.members[3]) == (2, 3, 1))


def _believed_isr(member: Member) -> tuple[int, ...]:
    image = member.metadata.partition(T0)
    return () if image is None else image.isr


async def test_isr_changes_that_do_not_count_are_refused() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        epoch = plane.members[2].request_handler.broker_epoch
        state = await plane.members[2].state(T0)
        leader_epoch, partition_epoch = state.leader_epoch, state.partition_epoch
        stale_run = (epoch, plane.members[3].request_handler.broker_epoch - 1)
        for proposal, code in (
            (IsrChange(T0, leader_epoch - 1, partition_epoch, (2,)), ErrorCode.FENCED_LEADER_EPOCH),
            (IsrChange(T0, leader_epoch, partition_epoch - 1, (2,)), ErrorCode.INVALID_UPDATE_VERSION),
            (IsrChange(T0, leader_epoch, partition_epoch, (3,)), ErrorCode.INVALID_REQUEST),
            (IsrChange(T0, leader_epoch, partition_epoch, (2, 1)), ErrorCode.INVALID_REQUEST),
            (IsrChange(T0, leader_epoch, partition_epoch, (3, 2), stale_run[::-1]), ErrorCode.INELIGIBLE_REPLICA),
            (IsrChange(T0, leader_epoch, partition_epoch, (2,), (), 1), ErrorCode.INVALID_REQUEST),
            (IsrChange(TopicPartition("u", 0), 0, 0, (2,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            result = await plane.controller.alter_partitions(2, epoch, [proposal])
            assert result == {proposal.topic_partition: code}, proposal
        with pytest.raises(KafkaError) as refused:
            await plane.controller.alter_partitions(2, epoch - 1, [])
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert await plane.members[2].state(T0) == state


async def test_isr_that_a_leader_wrote_itself_is_taken_in() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3, 1))
        leader = plane.members[2]
        state = await leader.state(T0)
        narrower = LeaderIsrAndControllerEpoch(
            2, state.leader_epoch, (2, 3), state.controller_epoch, state.partition_epoch
        )
        await leader.cluster_store.propagate_isr_change(T0, narrower)
        await plane.until(lambda: all(_believed_isr(one) == (2, 3) for one in plane.members.values()))
        await plane.until_true(lambda: _is_empty(leader.store, znodes.ISR_CHANGES))
        await plane.kill(2)
        await everybody_believes(plane, 3)


async def test_election_heeds_what_a_leader_has_just_written() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3, 1))
        leader = plane.members[2]
        state = await leader.state(T0)
        # Without a notice: the controller has not heard of it when it elects.
        path = znodes.state_path(*T0)
        data = znodes.encode_state(LeaderIsrAndControllerEpoch(2, 0, (2, 1), state.controller_epoch))
        await leader.store.set(path, data, state.partition_epoch)
        await plane.kill(2)
        await everybody_believes(plane, 1)
        assert (await plane.members[1].state(T0)).isr == (1,)


async def test_election_that_a_leader_has_just_made_impossible_is_refused_for_itself_alone() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3), (2, 3))
        t1 = TopicPartition("t", 1)
        await plane.kill(2)
        await everybody_believes(plane, 3)
        await plane.start(2)
        await plane.until(lambda: T0 in plane.members[2].replicas.roles and t1 in plane.members[2].replicas.roles)
        leader = plane.members[3]
        for partition in (T0, t1):
            state = await leader.state(partition)
            wider = IsrChange(partition, state.leader_epoch, state.partition_epoch, (3, 2))
            await plane.controller.alter_partitions(3, leader.request_handler.broker_epoch, [wider])
        state = await leader.state(T0)
        narrower = LeaderIsrAndControllerEpoch(3, state.leader_epoch, (3,), state.controller_epoch)
        await leader.store.set(znodes.state_path(*T0), znodes.encode_state(narrower), state.partition_epoch)
        results = await plane.controller.elect_leaders([T0, t1], allow_unclean=False)
        refused = results[T0]
        assert refused is not None
        assert (refused.code, results[t1]) == (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None)
        await everybody_believes(plane, 2, t1)


# Deletion, growth, reassignment, balance


async def test_deletion_waits_for_a_broker_that_is_away() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 3))
        await plane.until(lambda: T0 in plane.members[3].replicas.roles)
        await plane.kill(3)
        await plane.until(lambda: 3 not in plane.members[1].metadata.brokers)
        assert await plane.controller.delete_topics(["t"], timeout_ms=60_000) == {"t": None}
        assert plane.members[1].replicas.deleted == [T0]
        assert await plane.members[1].topic_store.topics_to_delete() == ["t"]
        await plane.until(lambda: all("t" not in one.metadata for one in plane.members.values()))
        taken = (await plane.controller.create_topics([TopicCreation("t", 1, 1)]))["t"]
        assert isinstance(taken, KafkaError)
        # Even the next controller goes on with it.
        await plane.members[1].store.delete("/controller")
        back = await plane.start(3)
        await plane.until_true(lambda: _is_empty(back.store, znodes.DELETE_TOPICS))
        assert back.replicas.deleted == [T0]
        assert await back.topic_store.topic("t") is None
        await create(plane, (3, 1))


async def test_who_deletes_a_topic_waits_for_a_broker_only_while_it_is_there() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 3))
        await create(plane, (1, 3), name="u")
        plane.cut.add(3)
        error = (await plane.controller.delete_topics(["t"], timeout_ms=1))["t"]
        assert error is not None
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        deletion = asyncio.ensure_future(plane.controller.delete_topics(["u"], timeout_ms=60_000))
        await plane.until(lambda: len(plane.members[1].replicas.deleted) == 2)
        assert not deletion.done()
        await plane.kill(3)
        assert await deletion == {"u": None}
        assert await plane.members[1].topic_store.topics_to_delete() == ["t", "u"]
        plane.cut.clear()
        await plane.start(3)
        await plane.until_true(lambda: _is_empty(plane.members[1].store, "/admin/delete_topics"))


@pytest.mark.parametrize("answers", [True, False])
async def test_who_deletes_a_topic_hears_what_the_next_controller_makes_of_it(answers: bool) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 3))
        await plane.until(lambda: T0 in plane.members[3].replicas.roles)
        plane.cut.add(3)
        chief = plane.controller
        deletion = asyncio.ensure_future(chief.delete_topics(["t"], timeout_ms=60_000 if answers else 1))
        await plane.until(lambda: plane.members[1].replicas.deleted == [T0])
        epoch = chief.controller_epoch
        await plane.members[2].store.delete("/controller")
        everybody = [one.controller for one in plane.members.values()]
        await plane.until(lambda: any(one.is_active and one.controller_epoch > epoch for one in everybody))
        if answers:
            assert not deletion.done()
            plane.cut.clear()
        outcome = (await deletion)["t"]
        if answers:
            assert outcome is None
        else:
            assert outcome is not None
            assert outcome.code is ErrorCode.REQUEST_TIMED_OUT


async def test_what_is_marked_in_the_tree_is_deleted_and_nothing_that_comes_later() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        store, chief = plane.members[3].store, plane.controller
        for name in ("t", "u"):
            await store.create(znodes.deletion_path(name))
        await plane.until_true(lambda: _is_empty(store, znodes.DELETE_TOPICS))
        assert await plane.members[3].topic_store.names() == []
        await create(plane, (2, 3), name="u")
        epoch = chief.controller_epoch
        await store.delete("/controller")
        active = [one.controller for one in plane.members.values()]
        await plane.until(lambda: any(one.is_active and one.controller_epoch > epoch for one in active))
        await create(plane, (2, 3), name="v")
        assert await plane.members[3].topic_store.names() == ["u", "v"]


async def test_marks_in_the_tree_go_where_topics_may_not_be_deleted() -> None:
    async with ClusterPlane(properties={"delete.topic.enable": "false"}) as plane:
        await create(plane, (2, 3))
        store = plane.members[3].store
        await store.create(znodes.deletion_path("t"))
        await plane.until_true(lambda: _is_empty(store, znodes.DELETE_TOPICS))
        assert await plane.members[3].topic_store.names() == ["t"]
        assert plane.members[2].replicas.deleted == []


async def test_topic_whose_leader_writes_its_state_while_it_is_deleted_is_forgotten_all_the_same() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 3))
        await plane.until(lambda: T0 in plane.members[3].replicas.roles)
        await plane.kill(3)
        leader = plane.members[1]
        await plane.until_true(lambda: _isr_is(plane, T0, (1,)))
        await plane.controller.delete_topics(["t"])
        await leader.cluster_store.propagate_isr_change(T0, await leader.state(T0))
        await plane.until_true(lambda: _is_empty(leader.store, znodes.ISR_CHANGES))
        epoch = leader.controller.controller_epoch
        await plane.start(3)
        await plane.until_true(lambda: _is_empty(leader.store, znodes.DELETE_TOPICS))
        await create(plane, (1, 3))
        assert leader.controller.controller_epoch == epoch


async def test_more_partitions_are_led_everywhere() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 2))
        assert await plane.controller.create_partitions([PartitionsCreation("t", 3, [(2, 3), (3, 1)])]) == {"t": None}
        await everybody_believes(plane, 3, TopicPartition("t", 2))
        await plane.until(lambda: plane.members[2].leads(TopicPartition("t", 1)))


async def test_partition_moves_to_other_brokers() -> None:
    async with ClusterPlane(brokers=4) as plane:
        await create(plane, (1, 2))
        await plane.until(lambda: T0 in plane.members[2].replicas.roles)
        assert await plane.controller.alter_partition_reassignments({T0: (3, 4)}) == {T0: None}
        (moving,) = plane.controller.list_partition_reassignments()
        assert (moving.assignment[0], moving.adding_replicas[0], moving.removing_replicas[0]) == (
            (3, 4, 1, 2),
            (3, 4),
            (1, 2),
        )
        await plane.until(lambda: T0 in plane.members[3].replicas.roles and T0 in plane.members[4].replicas.roles)
        assert isinstance(await propose(plane, 1, (1, 2, 3)), LeaderIsrAndControllerEpoch)
        assert plane.controller.list_partition_reassignments() != []
        assert isinstance(await propose(plane, 1, (1, 2, 3, 4)), LeaderIsrAndControllerEpoch)
        await everybody_believes(plane, 3)
        await plane.until(lambda: plane.controller.list_partition_reassignments() == [])
        await plane.until(lambda: plane.members[1].replicas.deleted == plane.members[2].replicas.deleted == [T0])
        assert (await plane.members[3].state(T0)).isr == (3, 4)
        topic = await plane.members[3].topic_store.topic("t")
        assert topic is not None
        assert (topic.assignment[0], topic.adding_replicas, topic.removing_replicas) == ((3, 4), {}, {})
        assert plane.members[3].leads(T0)


async def test_replica_that_moved_while_its_broker_had_no_session_is_given_up_with_its_folder_left() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 2))
        away = plane.members[2]
        await plane.until(lambda: T0 in away.replicas.roles)
        await plane.members[1].store.delete("/brokers/ids/2")
        await plane.until(lambda: 2 not in plane.members[3].metadata.brokers)
        assert await plane.controller.alter_partition_reassignments({T0: (1, 3)}) == {T0: None}
        await plane.until(lambda: T0 in plane.members[3].replicas.roles)
        assert isinstance(await propose(plane, 1, (1, 3)), LeaderIsrAndControllerEpoch)
        await plane.until(lambda: plane.controller.list_partition_reassignments() == [])
        assert T0 in away.replicas.roles
        await away.register()
        await plane.until(lambda: T0 not in away.replicas.roles)
        assert away.replicas.deleted == []
        assert await plane.controller.alter_partition_reassignments({T0: (1, 2)}) == {T0: None}
        await plane.until(lambda: T0 in away.replicas.roles)


async def test_reassignment_outlives_its_controller() -> None:
    async with ClusterPlane(brokers=4) as plane:
        await create(plane, (2, 3))
        await plane.controller.alter_partition_reassignments({T0: (3, 4)})
        await plane.kill(1)
        await plane.until(lambda: sum(one.controller.is_active for one in plane.members.values()) == 1)
        await plane.until(lambda: [one.name for one in plane.controller.list_partition_reassignments()] == ["t"])
        await plane.until(lambda: T0 in plane.members[4].replicas.roles)
        assert isinstance(await propose(plane, 2, (2, 3, 4)), LeaderIsrAndControllerEpoch)
        await everybody_believes(plane, 3)
        await plane.until(lambda: plane.members[2].replicas.deleted == [T0])


async def test_move_of_which_the_last_write_is_not_answered_leaves_no_former_replicas_to_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the topic's node all is done: nothing tells the next controller what the leader has not heard."""
    async with ClusterPlane(brokers=4) as plane:
        await create(plane, (2, 3))
        await plane.controller.alter_partition_reassignments({T0: (3, 4)})
        await plane.until(lambda: T0 in plane.members[4].replicas.roles)
        store = plane.members[1].topic_store
        really = store.set_topic

        async def without_answer(topic: TopicRegistration, term: ControllerTerm) -> None:
            monkeypatch.undo()
            await plane.until(lambda: plane.members[3].leads(T0))
            await really(topic, term)
            raise StoreUnavailableError("the answer is lost")

        monkeypatch.setattr(store, "set_topic", without_answer)
        chief = plane.controller
        first_term = chief.controller_epoch
        assert isinstance(await propose(plane, 2, (2, 3, 4)), LeaderIsrAndControllerEpoch)
        await plane.until(lambda: chief.is_active and chief.controller_epoch > first_term)
        await plane.until(lambda: T0 not in plane.members[2].replicas.roles)
        for member in plane.members[3], plane.members[4]:
            order = member.replicas.roles[T0]
            assert (order.replicas, order.adding_replicas, order.removing_replicas) == ((3, 4), (), ())
            assert order.isr == (3, 4)
        assert plane.controller.list_partition_reassignments() == []


async def test_reassignment_is_taken_back_and_replaced() -> None:
    async with ClusterPlane(brokers=4) as plane:
        await create(plane, (1, 2))
        await plane.controller.alter_partition_reassignments({T0: (1, 3)})
        await plane.until(lambda: T0 in plane.members[3].replicas.roles)
        assert await plane.controller.alter_partition_reassignments({T0: (1, 4)}) == {T0: None}
        await plane.until(lambda: plane.members[3].replicas.deleted == [T0])
        assert isinstance(await propose(plane, 1, (1, 2)), LeaderIsrAndControllerEpoch)
        assert await plane.controller.alter_partition_reassignments({T0: None}) == {T0: None}
        await plane.until(lambda: plane.members[4].replicas.deleted == [T0])
        topic = await plane.members[1].topic_store.topic("t")
        assert topic is not None
        assert (topic.assignment[0], topic.adding_replicas, topic.removing_replicas) == ((1, 2), {}, {})
        assert plane.members[1].leads(T0)


async def test_reassignment_is_not_taken_back_to_brokers_that_lack_records() -> None:
    async with ClusterPlane(brokers=4) as plane:
        await create(plane, (2, 3))
        await plane.controller.alter_partition_reassignments({T0: (1, 4)})
        await plane.until(lambda: T0 in plane.members[4].replicas.roles)
        assert isinstance(await propose(plane, 2, (2, 4)), LeaderIsrAndControllerEpoch)
        await plane.kill(2)
        await everybody_believes(plane, 4)
        refused = (await plane.controller.alter_partition_reassignments({T0: None}))[T0]
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert plane.members[4].leads(T0)
        assert plane.members[4].replicas.deleted == []
        await plane.kill(4)
        await everybody_believes(plane, NO_LEADER)
        refused = (await plane.controller.alter_partition_reassignments({T0: None}))[T0]
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_partition_that_nobody_leads_is_reassigned_once_who_was_in_sync_is_back() -> None:
    async with ClusterPlane(brokers=4) as plane:
        await create(plane, (3,))
        await plane.kill(3)
        await everybody_believes(plane, NO_LEADER)
        assert await plane.controller.alter_partition_reassignments({T0: (4, 2)}) == {T0: None}
        state = await plane.members[4].state(T0)
        assert (state.leader, state.isr) == (NO_LEADER, (3,))
        assert await plane.controller.elect_leaders([T0], allow_unclean=False) != {T0: None}
        # Another controller goes on with it.
        await plane.kill(1)
        await plane.until(lambda: any(one.controller.is_active for one in plane.members.values()))
        back = await plane.start(3)
        await everybody_believes(plane, 3)
        await plane.until(lambda: all(T0 in plane.members[one].replicas.roles for one in (2, 3, 4)))
        assert isinstance(await propose(plane, 3, (3, 4, 2)), LeaderIsrAndControllerEpoch)
        await plane.until_true(lambda: _is_assigned(back, (4, 2)))
        await everybody_believes(plane, 4)
        assert back.replicas.deleted == [T0]


async def test_reassignment_of_a_partition_that_nobody_leads_is_taken_back() -> None:
    async with ClusterPlane(brokers=4) as plane:
        await create(plane, (2, 3))
        await plane.kill(2)
        await plane.kill(3)
        await everybody_believes(plane, NO_LEADER)
        assert await plane.controller.alter_partition_reassignments({T0: (2, 4)}) == {T0: None}
        assert await plane.controller.alter_partition_reassignments({T0: None}) == {T0: None}
        assert plane.controller.list_partition_reassignments() == []
        state = await plane.members[4].state(T0)
        assert (state.leader, state.isr) == (NO_LEADER, (3,))
        # Who is to get a replica has to be there; who has one need not.
        refused = (await plane.controller.alter_partition_reassignments({T0: (2, 9)}))[T0]
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await plane.start(3)
        await everybody_believes(plane, 3)


UNCLEAN = "unclean.leader.election.enable"


@pytest.mark.parametrize("election", ["allowed before", "allowed to the topic", "allowed to all", "asked for"])
async def test_reassignment_ends_when_who_is_waited_for_leads_without_having_been_in_sync(election: str) -> None:
    async with ClusterPlane(brokers=4) as plane:
        await create(plane, (3,), **({UNCLEAN: "true"} if election == "allowed before" else {}))
        assert await plane.controller.alter_partition_reassignments({T0: (4,)}) == {T0: None}
        await plane.until(lambda: T0 in plane.members[4].replicas.roles)
        await plane.kill(3)
        if election != "allowed before":
            await everybody_believes(plane, NO_LEADER)
        configs = plane.members[1].dynamic_config
        if election == "allowed to the topic":
            configs.topic_config_changed("t", {UNCLEAN: "true"})
        elif election == "allowed to all":
            configs.broker_config_changed({UNCLEAN: "true"}, per_broker=False)
        elif election == "asked for":
            assert await plane.controller.elect_leaders([T0], allow_unclean=True) == {T0: None}
        await plane.until(lambda: plane.members[4].leads(T0) and plane.controller.list_partition_reassignments() == [])
        # In memory first, in the tree last.
        await plane.until_true(lambda: _is_assigned(plane.members[4], (4,)))


async def _is_assigned(member: Member, replicas: tuple[int, ...]) -> bool:
    """Whether the tree says that T0 has these replicas, and is on its way to no others."""
    topic = await member.topic_store.topic("t")
    assert topic is not None
    return (topic.assignment[0], topic.adding_replicas, topic.removing_replicas) == (replicas, {}, {})


async def test_wishes_that_operators_leave_in_the_tree_are_fulfilled() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 2))
        store = plane.members[3].store
        await store.create(
            znodes.REASSIGN_PARTITIONS,
            b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]}]}',
        )
        await plane.until_true(lambda: _is_gone(store, znodes.REASSIGN_PARTITIONS))
        assert leader_of(plane.members[1]) == 1
        await store.create(znodes.PREFERRED_ELECTION, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}')
        await everybody_believes(plane, 2)
        await plane.until_true(lambda: _is_gone(store, znodes.PREFERRED_ELECTION))
        await store.create(znodes.PREFERRED_ELECTION, b"what?")
        await create(plane, (3,), name="u")


async def _is_gone(store: MetadataStore, path: str) -> bool:
    return await store.exists(path) is None


async def test_leaders_go_back_to_where_they_belong() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (3, 1), (2, 1))
        await everybody_believes(plane, 3)
        await plane.kill(3)
        await everybody_believes(plane, 1)
        await plane.start(3)
        await plane.until(lambda: T0 in plane.members[3].replicas.roles)
        await plane.controller.check_and_trigger_auto_leader_rebalance()
        assert leader_of(plane.members[1]) == 1, "it is not in sync yet"
        assert isinstance(await propose(plane, 1, (1, 3)), LeaderIsrAndControllerEpoch)
        await plane.controller.check_and_trigger_auto_leader_rebalance()
        await everybody_believes(plane, 3)


async def test_replicas_are_spread_over_racks() -> None:
    async with ClusterPlane(brokers=4, racks={1: "a", 2: "a", 3: "b", 4: "b"}) as plane:
        result = (await plane.controller.create_topics([TopicCreation("t", 8, 2)]))["t"]
        assert isinstance(result, CreatedTopic)
        topic = await plane.members[1].topic_store.topic("t")
        assert topic is not None
        assert all(len({plane.racks[one] for one in replicas}) == 2 for replicas in topic.assignment.values())


async def test_topics_are_not_all_listed_for_each_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    names, looks = TopicStore.names, 0

    async def counted(self: TopicStore, watch: Watch | None = None) -> list[str]:
        nonlocal looks
        looks += watch is not None
        return await names(self, watch)

    monkeypatch.setattr(TopicStore, "names", counted)
    monkeypatch.setattr(controller_elector, "TOPICS_PAUSE_SECONDS", 3600.0)
    async with ClusterPlane() as plane:
        await plane.until(lambda: looks == 1)
        for number in range(20):
            await create(plane, (1, 2), name=f"t{number}")
        assert looks == 1


async def test_what_goes_wrong_in_a_term_ends_it_and_the_next_begins() -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3))
        controller = plane.controller
        epoch = controller.controller_epoch

        async def fail(*_: object) -> None:
            raise AssertionError("on purpose")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(controller, "_on_broker_startup", fail)
            await plane.start(4)
            await plane.until(lambda: not controller.is_active or controller.controller_epoch > epoch)
        await plane.until(lambda: 4 in plane.members[3].metadata.brokers)
        await create(plane, (4, 3), name="u")


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (BadVersionError, ErrorCode.NOT_CONTROLLER),
        (NoNodeError, ErrorCode.NOT_CONTROLLER),
        (SessionExpiredError, ErrorCode.NOT_CONTROLLER),
        (StoreUnavailableError, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_what_the_store_refuses_has_an_answer_that_clients_know(
    failure: type[StoreError], code: ErrorCode
) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (1, 2))
        await plane.until(lambda: plane.members[1].leads(T0))
        controller, epoch = plane.controller, plane.controller.controller_epoch

        async def fail(*_: object) -> None:
            raise failure("/brokers/topics/t")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plane.members[1].topic_store, "set_topic", fail)
            with pytest.raises(KafkaError) as refused:
                await controller.alter_partition_reassignments({T0: [1, 3]})
        assert refused.value.code is code

        def begins_anew() -> bool:
            active = [one.controller for one in plane.members.values() if one.controller.is_active]
            return any(one.controller_epoch > epoch for one in active)

        await plane.until(begins_anew)
        assert await plane.controller.alter_partition_reassignments({T0: [1, 3]}) == {T0: None}
