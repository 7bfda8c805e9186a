"""Members of groups of the newer protocol (KIP-848) against a whole broker, under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.clients.group import test_group_histories
from tests.clients.group.group_world import GROUP, PARTITIONS, QUICK, TOPIC, Diary, GroupWorld, play

from barnabas.clients.admin import GroupDescription
from barnabas.clients.cluster import ClusterView
from barnabas.clients.errors import CommitFailedError, FencedInstanceIdError
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

QUICKER = QUICK | {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
}
NEWER: dict[str, Any] = {"group_protocol": "consumer"}


async def described(world: GroupWorld) -> GroupDescription:
    async with world.admin() as admin:
        group = (await admin.describe_groups([GROUP]))[GROUP]
        assert not isinstance(group, KafkaError), group
        return group


async def until_given(world: GroupWorld, counts: list[int]) -> None:
    """Until the coordinator has so many partitions down for each member."""
    deadline = world.loop.time() + 60
    while (given := sorted(len(member.assigned) for member in (await described(world)).members)) != counts:
        assert world.loop.time() < deadline, given
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("assignor", [None, "range", "uniform"])
def test_members_share_leave_and_come_back(assignor: str | None) -> None:
    async def story(world: GroupWorld) -> None:
        settings = NEWER | {"group_remote_assignor": assignor}
        first = world.reader(**settings)
        values = await world.produce(100)
        await world.until(lambda: values <= set(first.values), "all is read")
        second = world.reader(**settings)
        await world.until_shared(first, second)
        assert first.diary.told() == ["assigned", "revoked"]
        group = await described(world)
        assert (group.type, group.assignor) == ("consumer", assignor or "uniform")
        values |= await world.produce(100)
        await world.until(lambda: len(first.records) + len(second.records) == 200, "all is read")
        await first.stop()
        await world.until_shared(second)
        await second.stop()
        assert values == set(first.values) | set(second.values)
        assert sum((await world.committed()).values()) == 200
        assert (await described(world)).members == ()

    play(story, settings=QUICKER)


def test_a_member_that_is_late_is_out_and_comes_back() -> None:
    async def story(world: GroupWorld) -> None:
        async with world.consumer(max_poll_interval_ms=2_000, enable_auto_commit=False, **NEWER) as late:
            diary = Diary()
            late.subscribe([TOPIC], listener=diary)
            await world.produce(40)
            for _ in range(40):
                await late.getone()
            other = world.reader(enable_auto_commit=False, **NEWER)
            await world.until_shared(other)
            with pytest.raises(CommitFailedError):
                await late.commit()
            deadline = world.loop.time() + 60
            while len(late.assignment) != 2:
                assert world.loop.time() < deadline
                await late.getmany(timeout_ms=200)
            await late.commit()
            assert diary.told() == ["assigned", "lost", "assigned"]
            await other.stop()

    play(story, settings=QUICKER)


def test_what_a_member_was_given_and_lost_before_it_read_is_free() -> None:
    """The busy one has just what it had, nothing to give up, and says so all the same."""

    async def story(world: GroupWorld) -> None:
        busy = world.reader(**NEWER)
        await world.until_shared(busy)
        second = world.reader(**NEWER)
        await world.until_shared(busy, second)
        busy.is_asleep, had = True, set(busy.assigned)
        await second.stop()
        await until_given(world, [PARTITIONS])
        third = world.reader(**NEWER)
        await until_given(world, [0, len(had)])
        assert (busy.assigned, third.assigned) == (had, set())
        busy.is_asleep = False
        await world.until_shared(busy, third)
        assert busy.assigned == had
        await busy.stop()
        await third.stop()

    play(story, settings=QUICKER)


def test_who_is_refused_is_told_so_and_joins_with_the_next_read() -> None:
    async def story(world: GroupWorld) -> None:
        first = world.reader(**NEWER)
        await world.until_shared(first)
        async with world.consumer(**NEWER) as second:
            second.subscribe([TOPIC])
            for _ in range(2):
                with pytest.raises(KafkaError) as refused:
                    await second.getmany(timeout_ms=60_000)
                assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            await first.stop()
            async with asyncio.timeout(60):
                while len(second.assignment) < PARTITIONS:
                    await second.getmany(timeout_ms=200)

    play(story, settings=QUICKER | {"group.consumer.max.size": "1"})


def test_a_crashed_members_partitions_go_to_others() -> None:
    async def story(world: GroupWorld) -> None:
        readers = [world.reader(**NEWER) for _ in range(2)]
        await world.until_shared(*readers)
        readers[0].kill()
        await world.until_shared(readers[1])
        await readers[1].stop()

    play(story, settings=QUICKER)


def test_a_static_member_comes_back_to_its_partitions_and_is_the_only_one() -> None:
    async def story(world: GroupWorld) -> None:
        readers = [world.reader(group_instance_id=name, **NEWER) for name in "ab"]
        await world.until_shared(*readers)
        had = set(readers[0].assigned)
        told = len(readers[1].diary.told())
        await readers[0].stop()
        back = world.reader(group_instance_id="a", **NEWER)
        await world.until_shared(back, readers[1])
        assert (back.assigned, len(readers[1].diary.told())) == (had, told)
        async with world.consumer(group_instance_id="a", **NEWER) as second:
            second.subscribe([TOPIC])
            with pytest.raises(FencedInstanceIdError):
                while True:
                    await second.getmany(timeout_ms=500)
        await back.stop()
        await readers[1].stop()

    play(story, settings=QUICKER)


def test_the_subscription_may_change_and_a_pattern_follows_the_topics() -> None:
    async def story(world: GroupWorld) -> None:
        await world.create_topic("p1", 1)
        async with world.consumer(**NEWER) as consumer:

            async def until(condition: Any) -> None:
                async with asyncio.timeout(60):
                    while not condition():
                        await consumer.getmany(timeout_ms=100)

            diary = Diary()
            consumer.subscribe([TOPIC], listener=diary)
            await until(lambda: len(consumer.assignment) == PARTITIONS)
            consumer.subscribe(pattern="p[0-9]", listener=diary)
            await until(lambda: consumer.assignment == {TopicPartition("p1", 0)})
            await world.create_topic("p2", 2)
            await until(lambda: len(consumer.assignment) == 3)
            await consumer.unsubscribe()
            assert (consumer.assignment, diary.owned) == (set(), set())

    play(story, settings=QUICKER)


def test_a_topic_that_is_gone_before_its_name_is_known_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    name_of = ClusterView.topic_name

    async def story(world: GroupWorld) -> None:
        await world.create_topic("gone", 1)
        server = world.world.broker.server
        assert server is not None
        gone = server.state.metadata.topic_id("gone")

        def known(self: ClusterView, topic_id: UUID) -> str | None:
            return None if topic_id == gone else name_of(self, topic_id)

        monkeypatch.setattr(ClusterView, "topic_name", known)
        reader = world.reader(topics=[TOPIC, "gone"], **NEWER)
        await world.until(lambda: reader.consumer.group_metadata().generation > 0, "it is a member")
        await until_given(world, [PARTITIONS + 1])
        await world.delete_topic("gone")
        await world.until(lambda: len(reader.assigned) >= PARTITIONS, "it reads the other topic", seconds=5)
        await reader.stop()

    play(story, settings=QUICKER)


def test_members_of_both_protocols_share_one_group() -> None:
    async def story(world: GroupWorld) -> None:
        older = world.reader(partition_assignment_strategy=["range"])
        await world.until_shared(older)
        newer = world.reader(**NEWER)
        await world.until_shared(older, newer)
        values = await world.produce(100)
        await world.until(lambda: len(older.records) + len(newer.records) == 100, "all is read")
        assert values == set(older.values) | set(newer.values)
        await older.stop()
        await world.until_shared(newer)
        await newer.stop()

    play(story, settings=QUICKER | {"group.consumer.migration.policy": "bidirectional"})


@pytest.mark.parametrize("seed", range(200, 206))
def test_gentle_lives(seed: int) -> None:
    test_group_histories.run(seed, test_group_histories.GENTLE, NEWER, QUICKER)


@pytest.mark.parametrize("seed", range(300, 306))
def test_rough_lives(seed: int) -> None:
    test_group_histories.run(seed, test_group_histories.ROUGH, NEWER, QUICKER)
