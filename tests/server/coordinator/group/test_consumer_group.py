"""Members of the consumer protocol come, go, crash and come back, over the wire of a whole broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from soak.groups.consumer_members import (
    Consumer,
    beat_for,
    consumers,
    describe,
    group_of,
    partitions,
    settle,
)
from soak.groups.members import GROUP, Cluster, play

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.coordinator.group import consumer_group_manager
from barnabas.server.coordinator.group.consumer_group import ConsumerGroupState
from barnabas.server.coordinator.group.consumer_group_manager import ConsumerGroupManager
from barnabas.server.coordinator.group.consumer_group_member import MemberState
from barnabas.server.coordinator.group.modern_group_member import STATIC_LEAVE_EPOCH

ALL = partitions("t-0", "t-1")


def test_a_member_gets_everything_and_gives_half_of_it_to_the_next() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        assert await first.turn() is ErrorCode.NONE
        assert (first.epoch, first.owned, first.interval_ms) == (2, ALL, 5000)
        assert await second.turn() is ErrorCode.NONE
        assert (second.epoch, second.owned) == (3, set())
        assert group_of(cluster).state is ConsumerGroupState.RECONCILING
        assert await first.beat() is ErrorCode.NONE
        assert first.epoch == 2 and len(first.granted) == 1
        assert await second.turn() is ErrorCode.NONE and second.owned == set()  # the first has not let go yet
        assert first.let_go() and await first.beat() is ErrorCode.NONE
        assert first.epoch == 3
        assert await second.turn() is ErrorCode.NONE
        assert len(first.owned) == len(second.owned) == 1 and first.owned | second.owned == ALL
        assert group_of(cluster).state is ConsumerGroupState.STABLE

    play(talk)


def test_an_assignment_is_told_when_it_is_news_or_everything_is_asked_for() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await consumers(cluster, "a")
        await member.turn()
        assert (await member.send()).assignment is None
        answer = await member.send(
            rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=member._on_the_wire(ALL)
        )
        assert answer.assignment is not None and answer.assignment.topic_partitions[0].partitions == [0, 1]

    play(talk)


def test_the_broker_makes_ids_for_members_of_version_0() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "", "", version=0)
        await settle(first, second)
        assert first.member_id != second.member_id and len(first.member_id) == 22

    play(talk)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "own"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "a(?=b)"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await consumers(cluster, "a")
        join = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        answer = await member.send(**{**join, **fields})
        assert answer.error_code == code and answer.error_message
        assert cluster.group() is None

    play(talk)


def test_the_protocol_can_be_turned_off() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await consumers(cluster, "a")
        assert await member.beat() is ErrorCode.UNSUPPORTED_VERSION

    play(talk, settings={"group.coordinator.rebalance.protocols": "classic"})


@pytest.mark.parametrize(
    ("settings", "level", "are_served"),
    [
        ({"zookeeper.connect": "zk:2181", "inter.broker.protocol.version": "2.8-IV0"}, 1, False),
        ({"zookeeper.connect": "zk:2181", "inter.broker.protocol.version": "2.8"}, 1, True),
        ({"zookeeper.connect": "zk:2181"}, 1, True),
        ({"inter.broker.protocol.version": "2.6"}, 1, True),
        ({}, 0, False),
    ],
)
def test_the_protocol_is_not_served_without_topic_ids_or_with_group_version_0(
    settings: dict[str, str], level: int, are_served: bool
) -> None:
    """Members would be given what nobody can name, and wait for ever."""
    any_part = cast(Any, SimpleNamespace(now_ms=lambda: 0, token_bytes=bytes))
    groups = ConsumerGroupManager(
        BrokerConfig(settings),
        any_part,
        any_part,
        any_part,
        any_part,
        any_part,
        any_part,
        any_part,
        lambda: level,
    )
    assert groups.are_served is are_served


def test_a_heartbeat_that_fails_inside_the_broker_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        await settle(first)
        group = group_of(cluster)
        with monkeypatch.context() as patch:
            patch.setattr(consumer_group_manager, "build_current_assignment", fail)
            assert await second.beat() is ErrorCode.UNKNOWN_SERVER_ERROR
            classic = await cluster.member()
            assert await classic.join() is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (group.epoch, group.assignment_epoch, set(group.members)) == (2, 2, {"a"})
        await settle(first, second)
        await cluster.restart()
        for member in (first, second):
            await member.connect()
        await settle(first, second)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    play(talk)


def test_a_full_group_lets_nobody_in() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        assert await first.turn() is ErrorCode.NONE
        assert await second.beat() is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await first.turn() is ErrorCode.NONE

    play(talk, settings={"group.consumer.max.size": "1"})


def test_a_member_that_falls_silent_loses_what_it_has() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        await settle(first, second)
        second.vanish()
        await beat_for(44, first)
        assert len(first.owned) == 1
        await beat_for(3, first)
        assert first.owned == ALL and "b" not in group_of(cluster).members
        zombie = await Consumer(cluster, name="b").connect()
        assert (await zombie.send(member_epoch=2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    play(talk)


def test_who_does_not_let_go_in_time_is_out() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b", rebalance_ms=20_000)
        await first.turn()
        await second.turn()
        for _ in range(10):
            assert await first.beat() is ErrorCode.NONE  # says nothing of having let go
            assert await second.turn() is ErrorCode.NONE
            await asyncio.sleep(1.9)
        await asyncio.sleep(1.5)
        assert await first.beat() is ErrorCode.UNKNOWN_MEMBER_ID
        await settle(second)
        assert second.owned == ALL

    play(talk)


def test_a_member_that_leaves_makes_room_at_once() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        await settle(first, second)
        assert await second.leave() is ErrorCode.NONE
        assert group_of(cluster).state is ConsumerGroupState.ASSIGNING
        await settle(first)
        assert first.owned == ALL
        assert await first.leave() is ErrorCode.NONE
        assert group_of(cluster).state is ConsumerGroupState.EMPTY
        assert await first.leave() is ErrorCode.UNKNOWN_MEMBER_ID

    play(talk)


def test_a_lost_answer_is_given_again_and_other_epochs_are_fenced() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        await first.turn()
        await second.turn()
        await first.turn()
        assert first.epoch == 3
        owned = first._on_the_wire(first.owned)
        again = await first.send(member_epoch=2, topic_partitions=owned)
        assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, 3)
        too_much = await first.send(member_epoch=2, topic_partitions=first._on_the_wire(ALL))
        assert too_much.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await first.send(member_epoch=2)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await first.send(member_epoch=4)).error_code == ErrorCode.FENCED_MEMBER_EPOCH

    play(talk)


def test_epochs_begin_again_after_the_last_one() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        await settle(first, second)
        group = group_of(cluster)
        group.epoch = group.assignment_epoch = 2**31 - 1
        for member in list(group.members.values()):
            group.put_member(replace(member, epoch=2**31 - 1))
        first.epoch = second.epoch = 2**31 - 1
        (third,) = await consumers(cluster, "c")
        await settle(first, second, third)
        assert group.epoch == group.assignment_epoch == first.epoch == second.epoch == third.epoch
        assert group.epoch < 10
        assert sorted(len(one.owned) for one in (first, second, third)) == [0, 1, 1]

    play(talk)


def test_a_fenced_member_may_begin_anew() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        await settle(first, second)
        first.epoch = 77
        assert await first.beat() is ErrorCode.FENCED_MEMBER_EPOCH
        first.begin_anew()
        await settle(first, second)
        assert len(first.owned) == 1

    play(talk)


@pytest.mark.parametrize("instance_id", [None, "one"])
def test_a_join_whose_answer_was_lost_is_answered_again_with_the_present_state(instance_id: str | None) -> None:
    async def talk(cluster: Cluster) -> None:
        (first,) = await consumers(cluster, "a", instance_id=instance_id)
        (second,) = await consumers(cluster, "b")
        await settle(first, second)
        before, epoch, owned = dict(group_of(cluster).members), group_of(cluster).epoch, set(first.owned)
        first.begin_anew()
        for _ in range(2):
            assert await first.beat() is ErrorCode.NONE
            assert (first.epoch, first.granted) == (before["a"].epoch, owned)
            first.epoch = 0
        assert group_of(cluster).epoch == epoch, "nobody else is troubled"
        assert {name: one.assigned for name, one in group_of(cluster).members.items()} == {
            name: one.assigned for name, one in before.items()
        }

    play(talk)


@pytest.mark.parametrize("instance_id", [None, "one"])
def test_a_first_join_is_answered_again_when_its_answer_was_lost(instance_id: str | None) -> None:
    async def talk(cluster: Cluster) -> None:
        (first,) = await consumers(cluster, "a", instance_id=instance_id)
        assert await first.beat() is ErrorCode.NONE
        epoch, granted = first.epoch, set(first.granted)
        first.begin_anew()
        assert await first.beat() is ErrorCode.NONE
        assert (first.epoch, first.granted, group_of(cluster).epoch) == (epoch, granted, epoch)
        assert len(group_of(cluster).members) == 1

    play(talk)


def test_static_members_keep_their_partitions_over_a_restart() -> None:
    async def talk(cluster: Cluster) -> None:
        (first,) = await consumers(cluster, "a", instance_id="one")
        (second,) = await consumers(cluster, "b", instance_id="two")
        await settle(first, second)
        (rival,) = await consumers(cluster, "c", instance_id="two")
        assert await rival.beat() is ErrorCode.UNRELEASED_INSTANCE_ID
        before, epoch = set(second.owned), group_of(cluster).epoch
        assert await second.leave(STATIC_LEAVE_EPOCH) is ErrorCode.NONE
        assert group_of(cluster).members["b"].epoch == STATIC_LEAVE_EPOCH
        await settle(first)
        assert len(first.owned) == 1
        assert await rival.turn() is ErrorCode.NONE
        assert rival.owned == before and group_of(cluster).epoch == epoch
        assert await second.beat() is ErrorCode.FENCED_INSTANCE_ID
        (stranger,) = await consumers(cluster, "d", instance_id="nobody")
        stranger.epoch = 1
        assert await stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID

    play(talk)


def test_a_static_member_that_does_not_come_back_is_replaced_after_its_session() -> None:
    async def talk(cluster: Cluster) -> None:
        (first,) = await consumers(cluster, "a")
        (second,) = await consumers(cluster, "b", instance_id="two")
        await settle(first, second)
        await second.leave(STATIC_LEAVE_EPOCH)
        await beat_for(40, first)
        assert len(first.owned) == 1
        await beat_for(8, first)
        assert first.owned == ALL
        assert await second.leave(-1) is ErrorCode.UNKNOWN_MEMBER_ID

    play(talk)


def test_topics_that_grow_come_and_go_are_assigned_anew() -> None:
    async def talk(cluster: Cluster) -> None:
        (first, second) = await consumers(cluster, "a", "b", topics=("t", "u"))
        await settle(first, second)
        grown = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=1000
        )
        assert [one.error_code for one in (await cluster.ask(grown, 3)).results] == [ErrorCode.NONE]
        await settle(first, second)
        assert first.owned | second.owned == partitions("t-0", "t-1", "t-2", "t-3")
        await cluster.create_topic("u", 2)
        await settle(first, second)
        assert (len(first.owned), len(second.owned)) == (3, 3)
        await cluster.delete_topic("t")
        await settle(first, second)
        assert first.owned | second.owned == partitions("u-0", "u-1")
        epoch = group_of(cluster).epoch
        await cluster.create_topic("nobody", 1)
        await settle(first, second)
        assert group_of(cluster).epoch == epoch

    play(talk)


def test_a_member_that_reads_other_topics_is_given_those() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u", 2)
        first, second = await consumers(cluster, "a", "b")
        await settle(first, second)
        second.topics = ("u",)
        assert await second.beat(full=True) is ErrorCode.NONE
        second.take()
        await settle(second, first)
        assert first.owned == ALL and second.owned == partitions("u-0", "u-1")

    play(talk)


def test_the_assignor_that_most_members_ask_for_is_taken() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u", 3)
        first, second = await consumers(cluster, "a", "b", topics=("t", "u"), assignor="range")
        await settle(first, second)
        assert first.owned == partitions("t-0", "u-0", "u-1") and second.owned == partitions("t-1", "u-2")
        assert (await describe(cluster)).assignor_name == "range"
        first.assignor = second.assignor = "uniform"
        await first.beat(full=True)
        await second.beat(full=True)
        assert (await describe(cluster)).assignor_name == "uniform"

    play(talk)


def test_another_preferred_assignor_computes_the_assignment_again() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await consumers(cluster, "a", assignor="range")
        await settle(member)
        group = group_of(cluster)
        assert (group.epoch, group.assignment_epoch) == (2, 2)
        for assignor, epoch in (("uniform", 3), ("uniform", 3), ("range", 4)):
            assert (await member.send(server_assignor=assignor)).member_epoch == epoch
            member.epoch = epoch
            assert (group.epoch, group.assignment_epoch) == (epoch, epoch)

    play(talk)


def test_the_preferred_of_two_assignors_with_as_many_members_is_always_the_same() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        first.assignor, second.assignor = "range", "uniform"
        await settle(first, second)
        epoch = group_of(cluster).epoch
        for rack_id in ("r", "s"):
            for member in (second, first):
                member.rack_id = rack_id
                assert await member.beat(full=True) is ErrorCode.NONE
                assert group_of(cluster).epoch == epoch
                assert (await describe(cluster)).assignor_name == "uniform"

    play(talk)


def test_a_regular_expression_finds_topics_that_come_later() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("one.a", 1)
        await cluster.create_topic("two.a", 1)
        (first,) = await consumers(cluster, "a", topics=(), regex="(one|three)[.][a-z]+")
        (second,) = await consumers(cluster, "b", topics=("t",))
        await settle(first, second)
        assert first.owned == partitions("one.a-0") and second.owned == ALL
        assert list(group_of(cluster).regexes) == ["(one|three)[.][a-z]+"]
        await cluster.create_topic("three.b", 1)
        await beat_for(12, first, second)
        assert first.owned == partitions("one.a-0", "three.b-0")
        await cluster.restart()
        await first.connect()
        await second.connect()
        await settle(first, second)
        assert first.owned == partitions("one.a-0", "three.b-0")
        first.topics, first.regex = ("t",), ""
        await first.beat(full=True)
        first.take()
        await settle(first, second)
        assert not group_of(cluster).regexes and len(first.owned) == len(second.owned) == 1

    play(talk)


def test_topics_of_an_expression_are_assigned_after_it_was_resolved() -> None:
    """The epochs are those of Kafka 4.4.0: see tests/compat/test_consumer_heartbeats.py."""

    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("one.a", 1)
        (first,) = await consumers(cluster, "a", topics=("t",), regex="one.*")
        await first.beat()
        assert (first.epoch, first.granted) == (2, ALL)
        await beat_for(2, first)
        assert (first.epoch, first.owned) == (3, ALL | partitions("one.a-0"))
        (alone,) = await consumers(cluster, "b", group_id="g2", topics=(), regex="one.*")
        await alone.beat()
        assert (alone.epoch, alone.granted) == (1, set())
        await beat_for(2, alone)
        assert (alone.epoch, alone.owned) == (2, partitions("one.a-0"))

    play(talk)


def test_topics_of_a_former_expression_are_not_assigned_while_the_next_one_is_not_resolved() -> None:
    async def talk(cluster: Cluster) -> None:
        for name in ("one.a", "two.a"):
            await cluster.create_topic(name, 1)
        first, second = await consumers(cluster, "a", "b", topics=(), regex="one.*")
        await settle(first, second)
        first.regex = "two.*"
        assert await first.beat(full=True) is ErrorCode.NONE
        # The expression of the other member was resolved less than ten seconds ago.
        await beat_for(5, first, second)
        assert (first.owned, second.owned) == (set(), set())
        await beat_for(8, first, second)
        assert (first.owned, second.owned) == (partitions("two.a-0"), partitions("one.a-0"))

    play(talk)


@pytest.mark.parametrize("how", ["kill", "B", "stop"])
def test_a_restarted_broker_knows_its_groups(how: str) -> None:
    async def talk(cluster: Cluster) -> None:
        (first,) = await consumers(cluster, "a", rack_id="r", assignor="uniform")
        (second,) = await consumers(cluster, "b", instance_id="two")
        await first.turn()
        await second.turn()
        await first.beat()
        before = await describe(cluster)
        state = {name: (one.state, one.assigned) for name, one in group_of(cluster).members.items()}
        assert [one for one, _ in state.values()] == [
            MemberState.UNREVOKED_PARTITIONS,
            MemberState.UNRELEASED_PARTITIONS,
        ]
        await cluster.restart(how)
        after = await describe(cluster)
        assert sorted(before.members, key=lambda one: one.member_id) == sorted(
            after.members, key=lambda one: one.member_id
        )
        before.members = after.members = []
        assert before == after
        assert {name: (one.state, one.assigned) for name, one in group_of(cluster).members.items()} == state
        for member in (first, second):
            await member.connect()
        await settle(first, second)
        assert len(first.owned) == len(second.owned) == 1

    play(talk)


def test_members_loaded_after_a_restart_have_their_full_sessions() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        await settle(first, second)
        await asyncio.sleep(40)
        await cluster.restart()
        await asyncio.sleep(40)
        assert set(group_of(cluster).members) == {"a", "b"}
        await cluster.until(lambda: group_of(cluster).is_empty, seconds=6)

    play(talk)


def test_an_older_epoch_commits_the_partitions_that_the_member_had_then() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        await first.turn()
        before = first.epoch
        await settle(first, second)
        ((_, kept),), ((_, given),) = first.owned, second.owned
        assert first.epoch == second.epoch > before
        for how in ("stop", None):
            assert await first.commit(5, generation=before, partition=kept) is ErrorCode.NONE
            assert await first.commit(6, generation=before - 1, partition=kept) is ErrorCode.STALE_MEMBER_EPOCH
            assert await first.commit(6, generation=before, partition=given) is ErrorCode.STALE_MEMBER_EPOCH
            assert await second.commit(6, generation=before, partition=given) is ErrorCode.STALE_MEMBER_EPOCH
            assert await second.commit(6, generation=second.epoch + 1, partition=given) is ErrorCode.STALE_MEMBER_EPOCH
            assert await second.commit(7, partition=given) is ErrorCode.NONE
            if how is not None:
                await cluster.restart(how)  # the epochs of the assignment are in the log
                for member in (first, second):
                    await member.connect()

    play(talk)


def test_assignments_are_computed_at_most_once_in_the_assignment_interval() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second, third = await consumers(cluster, "a", "b", "c")
        await first.turn()
        assert (first.epoch, first.owned) == (2, ALL)  # the first assignment is computed immediately
        await second.turn()
        await third.turn()
        group = group_of(cluster)
        assert (group.epoch, group.assignment_epoch, group.state) == (4, 2, ConsumerGroupState.ASSIGNING)
        assert (second.epoch, second.owned, third.epoch, third.owned) == (2, set(), 2, set())
        await asyncio.sleep(1)
        await cluster.restart()  # the time of the assignment is in the log
        for member in (first, second, third):
            await member.connect()
        assert await second.turn() is ErrorCode.NONE
        assert (group_of(cluster).assignment_epoch, second.epoch) == (2, 2)
        await asyncio.sleep(1)
        assert await second.turn() is ErrorCode.NONE
        assert (group_of(cluster).assignment_epoch, second.epoch) == (4, 4)
        await settle(first, second, third)
        assert first.owned | second.owned | third.owned == ALL

    play(talk, settings={"group.consumer.assignment.interval.ms": "2000"})


def test_a_member_revokes_topics_that_it_no_longer_reads_within_the_assignment_interval() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u")
        (member,) = await consumers(cluster, "a", topics=["t", "u"])
        await member.turn()
        assert {name for name, _ in member.owned} == {"t", "u"}
        member.topics = ["t"]
        assert await member.beat(full=True) is ErrorCode.NONE
        assert {name for name, _ in member.granted} == {"t"}
        assert member.let_go() and await member.beat() is ErrorCode.NONE
        group = group_of(cluster)
        assert (group.epoch, group.assignment_epoch) == (3, 2)
        assert (member.epoch, {name for name, _ in member.owned}) == (2, {"t"})
        await asyncio.sleep(2)
        assert await member.turn() is ErrorCode.NONE
        assert member.epoch == 3

    play(talk, settings={"group.consumer.assignment.interval.ms": "2000"})


def test_a_group_has_an_assignment_interval_of_its_own() -> None:
    async def talk(cluster: Cluster) -> None:
        setting = AlterableConfig(name="consumer.assignment.interval.ms", config_operation=0, value="0")
        resource = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[setting])
        await cluster.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        first, second = await consumers(cluster, "a", "b")
        await first.turn()
        await second.turn()
        assert group_of(cluster).assignment_epoch == 3

    play(talk, settings={"group.consumer.assignment.interval.ms": "15000"})


def test_the_first_member_of_an_empty_group_does_not_wait_for_the_assignment_interval() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await consumers(cluster, "a", "b")
        await first.turn()
        assert await first.leave() is ErrorCode.NONE
        group = group_of(cluster)
        assert (group.epoch, group.assignment_epoch, group.state) == (3, 3, ConsumerGroupState.EMPTY)
        assert await second.turn() is ErrorCode.NONE
        assert (second.epoch, second.owned) == (4, ALL)

    play(talk, settings={"group.consumer.assignment.interval.ms": "1000"})


def test_commits_are_fenced_by_the_member_epoch() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await consumers(cluster, "a")
        await member.turn()
        assert await member.commit(5) is ErrorCode.NONE
        assert await member.commit(6, generation=member.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
        assert await member.commit(6, generation=member.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
        assert await member.commit(6, member_id="b") is ErrorCode.UNKNOWN_MEMBER_ID
        assert await member.commit(6, version=8) is ErrorCode.UNSUPPORTED_VERSION
        assert await member.commit(6, member_id="", generation=-1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await member.commit(6, group_id="no such group") is ErrorCode.GROUP_ID_NOT_FOUND
        assert await fetch(cluster) == (0, 5)
        assert await fetch(cluster, "a", member.epoch) == (0, 5)
        assert (await fetch(cluster, "a", member.epoch + 1))[0] == ErrorCode.STALE_MEMBER_EPOCH
        assert (await fetch(cluster, "b", member.epoch))[0] == ErrorCode.UNKNOWN_MEMBER_ID
        await member.leave()
        assert await member.commit(7, member_id="", generation=-1) is ErrorCode.NONE
        assert await fetch(cluster) == (0, 7)

    play(talk)


async def fetch(cluster: Cluster, member_id: str | None = None, epoch: int = -1) -> tuple[int, int]:
    """OffsetFetch of `t`-0: the error and the offset."""
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=wanted)
    (group,) = (await cluster.ask(OffsetFetchRequest(groups=[asked]), 9)).groups
    return group.error_code, group.topics[0].partitions[0].committed_offset if group.topics else -1


def test_groups_are_shown_by_their_kind() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await consumers(cluster, "a", rack_id="r1")
        await member.turn()
        await cluster.commit(3, group_id="simple")

        async def listed(**filters: list[str]) -> list[tuple[str, str, str, str]]:
            answer = await cluster.ask(ListGroupsRequest(**filters), 5)
            return [(g.group_id, g.group_type, g.protocol_type, g.group_state) for g in answer.groups]

        ours = (GROUP, "consumer", "consumer", "Stable")
        simple = ("simple", "classic", "", "Empty")
        assert sorted(await listed()) == sorted([ours, simple])
        assert await listed(types_filter=["Consumer"]) == [ours]
        assert await listed(types_filter=["classic"]) == [simple]
        assert await listed(states_filter=["stable"]) == [ours]
        assert await listed(states_filter=["assigning"]) == []
        described = await describe(cluster)
        assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
        (one,) = described.members
        assert (one.member_id, one.member_epoch, one.member_type, one.rack_id) == ("a", 2, 1, "r1")
        assert one.client_id == "consumer" and one.client_host.startswith("/")
        (topic,) = one.assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == ("t", [0, 1])
        assert one.assignment == one.target_assignment
        unknown = (await cluster.ask(ConsumerGroupDescribeRequest(group_ids=["x", "simple", ""]), 0)).groups
        assert [group.error_code for group in unknown] == [69, 69, 24]
        for version, code in ((5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
            (classic,) = (await cluster.ask(DescribeGroupsRequest(groups=[GROUP]), version)).groups
            assert (classic.group_state, classic.error_code) == ("Dead", code)

    play(talk)


def test_an_empty_group_is_deleted_with_all_its_records() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await consumers(cluster, "a", topics=("t",), regex="t+")
        await member.turn()
        await member.commit(5)
        assert await delete(cluster) == ErrorCode.NON_EMPTY_GROUP
        await member.leave()
        assert await delete(cluster) == ErrorCode.NONE
        assert cluster.group() is None
        await cluster.restart()
        assert cluster.group() is None
        assert await delete(cluster) == ErrorCode.GROUP_ID_NOT_FOUND

    play(talk)


async def delete(cluster: Cluster) -> int:
    (result,) = (await cluster.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)).results
    return int(result.error_code)


def test_offsets_of_topics_that_are_read_stay() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await consumers(cluster, "a")
        await member.turn()
        await member.commit(5)
        partition = OffsetDeleteRequestPartition(partition_index=0)
        request = OffsetDeleteRequest(
            group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="t", partitions=[partition])]
        )

        async def error() -> int:
            return int((await cluster.ask(request, 0)).topics[0].partitions[0].error_code)

        assert await error() == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        groups = cluster.state.group_coordinator
        await asyncio.sleep(61)
        member.begin_anew()
        assert await member.turn() is ErrorCode.NONE
        await groups.cleanup_expired_offsets()
        assert await fetch(cluster) == (0, 5)
        await member.leave()
        await groups.cleanup_expired_offsets()
        assert cluster.group() is None

    play(talk, settings={"offsets.retention.minutes": "1"})


def test_a_group_has_timeouts_of_its_own() -> None:
    async def talk(cluster: Cluster) -> None:
        configs = [
            AlterableConfig(name=f"consumer.{name}", config_operation=0, value=value)
            for name, value in (("session.timeout.ms", "50000"), ("heartbeat.interval.ms", "7000"))
        ]
        resource = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=configs)
        answer = await cluster.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == ErrorCode.NONE
        await cluster.restart()
        (member,) = await consumers(cluster, "a")
        await member.turn()
        assert member.interval_ms == 7000
        await asyncio.sleep(49)
        assert not group_of(cluster).is_empty
        await cluster.until(lambda: group_of(cluster).is_empty, seconds=2)

    play(talk)
