"""Groups that go over to the consumer protocol while they run, and back (KIP-848's online migration)."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from soak.groups.consumer_members import Consumer, consumers, describe, group_of, partitions, settle
from soak.groups.members import GROUP, Cluster, Member, play

from barnabas.protocol.codec import decode_versioned, encode_versioned
from barnabas.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.group.classic_group import ClassicGroup, ClassicGroupState
from barnabas.server.coordinator.group.consumer_group import ConsumerGroup

ALL = [0, 1]
DEFAULT_INTERVAL = {"group.consumer.assignment.interval.ms": "1000"}
"""The broker's default, which `play` replaces."""


class Classic(Member):
    """A classic member with Kafka's own payloads, which as a leader gives everybody a share of `t`."""

    owned: tuple[int, ...] = ()

    async def join_once(self):  # type: ignore[no-untyped-def]
        has = [TopicPartitions(topic="t", partitions=list(self.owned))] if self.owned else []
        self.metadata = encode_versioned(ConsumerProtocolSubscription(topics=["t"], owned_partitions=has), 1)
        return await super().join_once()

    async def sync(self, assignments=None):  # type: ignore[no-untyped-def]
        if self.joined is not None and self.joined.members:
            names = [one.member_id for one in self.joined.members]
            assignments = {
                name: encode_versioned(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[TopicPartitions(topic="t", partitions=ALL[place :: len(names)])]
                    ),
                    1,
                )
                for place, name in enumerate(names)
            }
        return await super().sync(assignments)

    @property
    def assigned(self) -> list[int]:
        """Partitions of `t` in the last answer to SyncGroup."""
        if not self.assignment:
            return []
        topics = decode_versioned(ConsumerProtocolAssignment, self.assignment).assigned_partitions
        return sorted(index for topic in topics for index in topic.partitions)

    async def follow(self) -> None:
        """Join and sync, letting go of what is not its own any more, until a heartbeat finds nothing to do."""
        for _ in range(8):
            if await self.heartbeat() is ErrorCode.NONE:
                return
            assert await self.join() is ErrorCode.NONE
            assert await self.sync() is ErrorCode.NONE
            self.owned = tuple(self.assigned)
        raise AssertionError("no end")


async def classic(cluster: Cluster, **options: Any) -> Classic:
    member = Classic(cluster, **options)  # type: ignore[arg-type]
    await member.connect()
    return member


async def classic_group(cluster: Cluster, *members: Classic) -> None:
    """These are in a stable classic group."""
    await members[0].find()
    await asyncio.gather(*(member.enter() for member in members))
    for member in members:
        member.owned = tuple(member.assigned)


def kind(cluster: Cluster) -> type[ClassicGroup] | type[ConsumerGroup]:
    group = cluster.group()
    assert group is not None
    return type(group)


async def arrive(*members: Consumer | Classic) -> None:
    """Everybody beats until all are where they shall be."""
    for _ in range(6):
        for member in members:
            if isinstance(member, Classic):
                await member.follow()
            else:
                assert await member.turn() is ErrorCode.NONE


def test_a_group_goes_over_with_the_first_that_speaks_the_new_protocol_and_back_with_the_last() -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster)
        await classic_group(cluster, old)
        assert old.assigned == ALL and await old.commit(5) is ErrorCode.NONE
        (new,) = await consumers(cluster, "n")
        assert await new.turn() is ErrorCode.NONE
        assert kind(cluster) is ConsumerGroup and await cluster.committed() == 5
        assert await old.commit(6) is ErrorCode.NONE  # its generation is still its epoch
        await arrive(old, new)
        assert len(old.assigned) == 1 and len(new.owned) == 1
        assert {index for _, index in new.owned} | set(old.assigned) == {0, 1}
        assert sorted(one.member_type for one in (await describe(cluster)).members) == [0, 1]
        assert await new.leave() is ErrorCode.NONE
        group = cluster.group()
        assert isinstance(group, ClassicGroup) and group.state is ClassicGroupState.PREPARING_REBALANCE
        assert await old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await old.enter()
        assert old.assigned == ALL and await cluster.committed() == 6

    play(talk)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_either_kind_is_loaded_after_a_restart(how: str) -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster)
        await classic_group(cluster, old)
        (new,) = await consumers(cluster, "n")
        await new.turn()
        await arrive(old, new)
        await cluster.restart(how)
        assert kind(cluster) is ConsumerGroup and group_of(cluster).classic_count == 1
        for member in (old, new):
            await member.connect()
        await arrive(old, new)
        assert await new.leave() is ErrorCode.NONE
        await cluster.restart(how)
        assert kind(cluster) is ClassicGroup
        await old.connect()
        assert await old.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

    play(talk)


def test_who_waits_in_a_rebalance_is_told_to_join_the_new_group() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await classic(cluster), await classic(cluster)
        await classic_group(cluster, first)
        assert (await second.join_once()).error_code == ErrorCode.MEMBER_ID_REQUIRED
        second.member_id = next(iter(cluster.group().pending_members))  # type: ignore[union-attr]
        waiting = asyncio.ensure_future(second.join_once())
        await asyncio.sleep(1)
        (new,) = await consumers(cluster, "n")
        assert await new.turn() is ErrorCode.NONE
        assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert await second.join() is ErrorCode.NONE
        assert await second.sync() is ErrorCode.NONE
        second.owned = tuple(second.assigned)
        await arrive(first, second, new)
        everything = [*first.assigned, *second.assigned, *(index for _, index in new.owned)]
        assert sorted(everything) == ALL

    play(talk)


@pytest.mark.parametrize(
    ("policy", "may_upgrade", "may_downgrade"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("BIDIRECTIONAL", True, True),
    ],
)
def test_the_policy_says_which_way_a_group_may_go(policy: str, may_upgrade: bool, may_downgrade: bool) -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster)
        await classic_group(cluster, old)
        (new,) = await consumers(cluster, "n")
        outcome = await new.beat()
        assert outcome is (ErrorCode.NONE if may_upgrade else ErrorCode.GROUP_ID_NOT_FOUND)
        if not may_upgrade:
            assert await old.heartbeat() is ErrorCode.NONE
            await old.leave()
            assert await new.turn() is ErrorCode.NONE  # an empty group may be of either kind at any time
            assert await old.join() is ErrorCode.NONE
        assert kind(cluster) is ConsumerGroup
        await arrive(old, new)
        await new.leave()
        assert kind(cluster) is (ClassicGroup if may_downgrade else ConsumerGroup)

    play(talk, settings={"group.consumer.migration.policy": policy})


def test_an_empty_group_becomes_what_its_first_member_speaks() -> None:
    async def talk(cluster: Cluster) -> None:
        (new,) = await consumers(cluster, "n")
        await new.turn()
        assert await new.commit(3) is ErrorCode.NONE
        await new.leave()
        old = await classic(cluster)
        await classic_group(cluster, old)
        assert kind(cluster) is ClassicGroup and await cluster.committed() == 3
        await old.leave()
        new.begin_anew()
        assert await new.turn() is ErrorCode.NONE
        assert kind(cluster) is ConsumerGroup and await cluster.committed() == 3
        await cluster.restart()
        assert kind(cluster) is ConsumerGroup and await cluster.committed() == 3

    play(talk)


def test_a_static_member_changes_its_protocol_with_a_restart() -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster, instance_id="one")
        await classic_group(cluster, old)
        (new,) = await consumers(cluster, "n", instance_id="one")
        assert await new.turn() is ErrorCode.NONE
        assert new.owned == partitions("t-0", "t-1") and kind(cluster) is ConsumerGroup
        assert await old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
        again = await classic(cluster, instance_id="one")
        await classic_group(cluster, again)
        assert kind(cluster) is ClassicGroup and again.assigned == ALL
        assert await new.beat() is ErrorCode.GROUP_ID_NOT_FOUND

    play(talk)


def test_what_a_classic_member_hears_in_a_group_of_the_other_kind() -> None:
    async def talk(cluster: Cluster) -> None:
        (new,) = await consumers(cluster, "n")
        await new.turn()
        old = await classic(cluster)
        assert (await old.join_once()).error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert await old.join() is ErrorCode.NONE and old.leader == ""
        await arrive(new)
        assert await old.sync() is ErrorCode.NONE
        generation, old.generation = old.generation, 77
        assert await old.heartbeat() is ErrorCode.ILLEGAL_GENERATION
        assert await old.sync() is ErrorCode.ILLEGAL_GENERATION
        assert await old.commit(1) is ErrorCode.ILLEGAL_GENERATION
        old.generation = generation
        await old.follow()
        assert await old.commit(1) is ErrorCode.NONE
        member_id, old.member_id = old.member_id, "n"
        assert await old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID  # it speaks the other protocol
        old.member_id = member_id
        stranger = await classic(cluster, protocols=("own",))
        assert await stranger.join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await old.leave() is ErrorCode.NONE
        await settle(new)
        assert new.owned == partitions("t-0", "t-1")

    play(talk)


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_an_operator_removes_a_member_of_the_consumer_protocol(instance_id: str | None) -> None:
    """With LeaveGroup, as AdminClient's removeMembersFromConsumerGroup does: by its id, or its instance id alone."""

    async def talk(cluster: Cluster) -> None:
        (stays,) = await consumers(cluster, "s")
        goes = await Consumer(cluster, name="g", instance_id=instance_id).connect()
        await settle(stays, goes)
        operator = await classic(cluster)
        operator.member_id, operator.instance_id = ("", instance_id) if instance_id else ("g", None)
        assert await operator.leave() is ErrorCode.NONE
        assert set(group_of(cluster).members) == {"s"}
        assert await operator.leave() is ErrorCode.UNKNOWN_MEMBER_ID
        assert await goes.beat() is ErrorCode.UNKNOWN_MEMBER_ID
        await settle(stays)
        assert stays.owned == partitions("t-0", "t-1")

    play(talk)


def test_a_classic_member_that_does_not_follow_is_out() -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster, session_ms=600_000, rebalance_ms=20_000)
        await classic_group(cluster, old)
        (new,) = await consumers(cluster, "n")
        await new.turn()
        assert await old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.sleep(15)
        assert await old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.sleep(6)
        assert await old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
        await settle(new)
        assert new.owned == partitions("t-0", "t-1")
        late = await classic(cluster, session_ms=600_000, rebalance_ms=20_000)
        assert await late.join() is ErrorCode.NONE  # and never asks what it is given
        await asyncio.sleep(21)
        assert set(group_of(cluster).members) == {"n"}

    play(talk)


def test_a_classic_member_does_not_join_again_within_the_assignment_interval() -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster)
        await classic_group(cluster, old)
        first, second = await consumers(cluster, "a", "b")
        assert await first.turn() is ErrorCode.NONE
        await old.follow()
        assert await second.turn() is ErrorCode.NONE
        group, generation = group_of(cluster), old.generation
        assert group.epoch > group.assignment_epoch == generation
        assert await old.heartbeat() is ErrorCode.NONE
        assert await old.join() is ErrorCode.NONE and old.generation == generation
        assert await old.sync() is ErrorCode.NONE and await old.heartbeat() is ErrorCode.NONE
        assert group.assignment_epoch == generation
        await asyncio.sleep(1)
        assert await old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await old.follow()
        assert old.generation == group.epoch == group.assignment_epoch

    play(talk, settings=DEFAULT_INTERVAL)


def test_a_group_of_classic_members_only_gets_its_assignment_after_the_interval() -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster)
        await classic_group(cluster, old)
        (new,) = await consumers(cluster, "n")
        assert await new.turn() is ErrorCode.NONE
        await old.follow()
        assert len(old.assigned) == 1
        assert await new.leave() is ErrorCode.NONE and kind(cluster) is ConsumerGroup
        assert await old.heartbeat() is ErrorCode.NONE
        await asyncio.sleep(1)
        assert await old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await old.follow()
        assert old.assigned == ALL

    play(talk, settings={**DEFAULT_INTERVAL, "group.consumer.migration.policy": "upgrade"})


def test_groups_that_are_no_consumers_stay_as_they_are() -> None:
    async def talk(cluster: Cluster) -> None:
        other = await cluster.member()
        other.metadata = b"\xff"
        await other.enter()
        (new,) = await consumers(cluster, "n")
        assert await new.beat() is ErrorCode.GROUP_ID_NOT_FOUND
        assert await other.heartbeat() is ErrorCode.NONE and kind(cluster) is ClassicGroup
        assert cluster.group(GROUP) is not None

    play(talk)


def test_a_group_with_data_of_a_custom_assignor_stays_as_it_is() -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster)
        await old.find()
        assert await old.join() is ErrorCode.NONE
        given = ConsumerProtocolAssignment(
            assigned_partitions=[TopicPartitions(topic="t", partitions=ALL)], user_data=b"mine"
        )
        assert await Member.sync(old, {old.member_id: encode_versioned(given, 1)}) is ErrorCode.NONE
        new = await Consumer(cluster, name="n").connect()
        answer = await new.send(rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[])
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "an unsupported custom assignor is in use" in (answer.error_message or "")
        assert kind(cluster) is ClassicGroup and await old.heartbeat() is ErrorCode.NONE
        await old.join()
        await old.sync()  # this time without
        assert await new.turn() is ErrorCode.NONE and kind(cluster) is ConsumerGroup

    play(talk)


@pytest.mark.parametrize("for_now", [True, False])
def test_a_static_member_that_is_back_with_the_classic_protocol_disturbs_nobody(for_now: bool) -> None:
    async def talk(cluster: Cluster) -> None:
        other = await classic(cluster, instance_id="two")
        await classic_group(cluster, other)
        (new,) = await consumers(cluster, "n", instance_id="one")
        await new.turn()
        await arrive(other, new)
        assert len(new.owned) == 1 and len(other.assigned) == 1
        group, epoch = group_of(cluster), group_of(cluster).epoch
        if for_now:
            await new.send(member_epoch=-2)
        again = await classic(cluster, instance_id="one")
        assert await again.join() is ErrorCode.NONE
        assert kind(cluster) is ClassicGroup and group.is_dead
        assert (again.generation, again.leader) == (epoch, "")
        assert await again.sync() is ErrorCode.NONE
        assert {("t", index) for index in again.assigned} == new.owned
        assert await other.heartbeat() is ErrorCode.NONE and other.generation == epoch
        await cluster.restart()
        for member in (again, other):
            await member.connect()
            assert await member.heartbeat() is ErrorCode.NONE

    play(talk)


def test_a_static_member_that_is_back_with_other_wishes_rebalances() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u")
        other = await classic(cluster, instance_id="two")
        await classic_group(cluster, other)
        (new,) = await consumers(cluster, "n", instance_id="one", topics=("t", "u"))
        await new.turn()
        await arrive(other, new)
        again = await classic(cluster, instance_id="one")
        joining = asyncio.ensure_future(again.join())
        await cluster.until(lambda: kind(cluster) is ClassicGroup, seconds=5)
        assert await other.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        assert await other.join() is ErrorCode.NONE and await joining is ErrorCode.NONE

    play(talk)


def test_nothing_is_left_of_groups_that_went_back() -> None:
    """However late a member says that it may come again: it may say so in milliseconds of three weeks."""

    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster, rebalance_ms=2**31 - 1)
        (new,) = await consumers(cluster, "n")
        await old.find()
        for _ in range(5):
            new.begin_anew()
            assert await new.turn() is ErrorCode.NONE and kind(cluster) is ConsumerGroup
            assert await old.join() is ErrorCode.NONE  # and it does not ask for what it is assigned
            assert await new.leave() is ErrorCode.NONE and kind(cluster) is ClassicGroup
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, ConsumerGroup) and one.group_id == GROUP]

    play(talk)


def test_a_member_that_goes_on_with_the_consumer_protocol_is_not_waited_for_in_the_other() -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster, rebalance_ms=20_000)
        (other,) = await consumers(cluster, "x")
        await old.find()
        assert await other.turn() is ErrorCode.NONE and await old.join() is ErrorCode.NONE
        (new,) = await consumers(cluster, old.member_id)
        if await new.turn() is not ErrorCode.NONE:
            new.begin_anew()
            assert await new.turn() is ErrorCode.NONE
        for _ in range(15):
            await asyncio.sleep(2)
            assert await other.turn() is ErrorCode.NONE
            assert await new.turn() is ErrorCode.NONE

    play(talk)


def test_a_static_member_that_came_again_under_another_id_is_not_waited_for_under_the_first() -> None:
    async def talk(cluster: Cluster) -> None:
        old = await classic(cluster, rebalance_ms=2**31 - 1, instance_id="i")
        (other,) = await consumers(cluster, "x")
        await old.find()
        assert await other.turn() is ErrorCode.NONE and await old.join() is ErrorCode.NONE
        again = await classic(cluster, rebalance_ms=2**31 - 1, instance_id="i")
        await again.find()
        assert await again.join() is ErrorCode.NONE
        groups = cluster.state.group_coordinator.consumer_group_manager
        assert len(groups._delayed_syncs) == 1

    play(talk)
