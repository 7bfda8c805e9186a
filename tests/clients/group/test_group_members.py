"""Consumers in groups against a whole broker, under virtual time: sharing, leaving, crashing, being late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.clients.group.group_world import GROUP, PARTITIONS, TOPIC, Diary, GroupWorld, Reader, play

from barnabas.clients.errors import FencedInstanceIdError
from barnabas.clients.group.heartbeats import Heartbeats
from barnabas.protocol import client_connection
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.schema import Versions
from barnabas.protocol.topic_partition import TopicPartition

ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


async def read_all(world: GroupWorld, values: set[bytes], *readers: Reader) -> None:
    """Between them the readers have read all this, everything they ever read just once."""
    await world.until(
        lambda: values <= {value for reader in readers for value in reader.values}, f"{len(values)} records are read"
    )
    read = [value for reader in readers for value in reader.values]
    assert len(read) == len(set(read))


@pytest.mark.parametrize("name", ASSIGNORS)
def test_members_share_leave_and_come_back(name: str) -> None:
    async def story(world: GroupWorld) -> None:
        settings: dict[str, Any] = {"partition_assignment_strategy": [name]}
        first = world.reader(**settings)
        await read_all(world, await world.produce(200), first)
        second = world.reader(**settings)
        await world.until_shared(first, second)
        await read_all(world, await world.produce(200), first, second)
        assert second.records
        await first.stop()
        await world.until_shared(second)
        await read_all(world, await world.produce(200), first, second)
        await second.stop()
        late = await world.produce(20)
        third = world.reader(**settings)
        await read_all(world, late, first, second, third)
        assert set(third.values) == late
        await third.stop()

    play(story)


def test_an_eager_member_gives_up_everything_at_every_rebalance() -> None:
    async def story(world: GroupWorld) -> None:
        first = world.reader()
        await world.until_shared(first)
        second = world.reader()
        await world.until_shared(first, second)
        assert [(how, len(partitions)) for how, partitions in first.diary.lines] == [
            ("assigned", 4),
            ("revoked", 4),
            ("assigned", 2),
        ]
        await second.stop()
        assert second.diary.told() == ["assigned", "revoked"]
        await first.stop()

    play(story)


def test_a_cooperative_member_gives_up_only_what_others_get_and_reads_on() -> None:
    async def story(world: GroupWorld) -> None:
        settings: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}
        first = world.reader(**settings)
        await world.until_shared(first)
        second = world.reader(**settings)
        await world.until_shared(first, second)
        assert [(how, len(partitions)) for how, partitions in first.diary.lines if partitions] == [
            ("assigned", 4),
            ("revoked", 2),
        ]
        await second.stop()
        await world.until_shared(first)
        assert first.diary.told() == ["assigned", "revoked", "assigned"]
        await first.stop()

    play(story)


@pytest.mark.parametrize("name", ["range", "cooperative-sticky"])
def test_a_crashed_members_partitions_go_to_others_after_its_session(name: str) -> None:
    async def story(world: GroupWorld) -> None:
        settings: dict[str, Any] = {"partition_assignment_strategy": [name], "enable_auto_commit": False}
        readers = [world.reader(**settings) for _ in range(2)]
        await world.until_shared(*readers)
        values = await world.produce(100)
        await world.until(lambda: sum(len(reader.records) for reader in readers) == 100, "all is read")
        died_at = world.loop.time()
        readers[0].kill()
        await world.until_shared(readers[1])
        assert 5 < world.loop.time() - died_at < 10
        await world.until(lambda: values <= set(readers[1].values), "what was not committed is read again")
        await readers[1].stop()

    play(story)


def test_who_does_not_read_in_time_is_out_and_hears_that_its_partitions_are_lost() -> None:
    async def story(world: GroupWorld) -> None:
        settings: dict[str, Any] = {"max_poll_interval_ms": 3_000}
        first, second = world.reader(**settings), world.reader(**settings)
        await world.until_shared(first, second)
        first.is_asleep = True
        await world.until_shared(second)
        assert first.diary.told()[-1] == "assigned"
        first.is_asleep = False
        await world.until_shared(first, second)
        assert "lost" in first.diary.told()
        assert first.consumer.assignment == first.diary.owned
        await first.stop()
        await second.stop()

    play(story)


def test_a_long_wait_for_records_is_not_being_late() -> None:
    async def story(world: GroupWorld) -> None:
        async with world.consumer(max_poll_interval_ms=2_000) as consumer:
            diary = Diary()
            consumer.subscribe([TOPIC], listener=diary)
            one = asyncio.create_task(consumer.getone())
            await asyncio.sleep(30)
            await world.produce(1)
            assert (await one).value == b"0"
            assert diary.told() == ["assigned"]

    play(story)


def test_members_go_on_when_the_broker_was_killed() -> None:
    async def story(world: GroupWorld) -> None:
        readers = [world.reader() for _ in range(2)]
        await world.until_shared(*readers)
        await read_all(world, await world.produce(100), *readers)
        for _ in range(3):
            await world.restart()
            values = await world.produce(50)
            await world.until(
                lambda values=values: values <= {v for r in readers for v in r.values},  # type: ignore[misc]
                "records after the restart are read",
            )
        await world.until_shared(*readers)
        for reader in readers:
            await reader.stop()
        assert sum((await world.committed()).values()) == world.produced

    play(story, settings={"acks.all.durability": "disk"})


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    async def story(world: GroupWorld) -> None:
        readers = [world.reader(group_instance_id=name) for name in "ab"]
        await world.until_shared(*readers)
        had = set(readers[0].assigned)
        told = len(readers[1].diary.lines)
        await readers[0].stop()
        back = world.reader(group_instance_id="a")
        await world.until_shared(back, readers[1])
        assert back.assigned == had
        assert len(readers[1].diary.lines) == told
        await back.stop()
        await readers[1].stop()

    play(story)


def test_the_second_of_two_with_one_instance_id_fences_the_first() -> None:
    async def story(world: GroupWorld) -> None:
        async with world.consumer(group_instance_id="a") as first, world.consumer(group_instance_id="a") as second:
            first.subscribe([TOPIC])
            second.subscribe([TOPIC])
            await world.produce(8)
            assert await first.getone()
            assert await second.getone()
            with pytest.raises(FencedInstanceIdError, match="'a'"):
                while True:
                    await first.getmany(timeout_ms=1000)
            with pytest.raises(FencedInstanceIdError):
                await first.getmany()

    play(story)


def test_a_pattern_follows_the_topics_there_are() -> None:
    async def story(world: GroupWorld) -> None:
        await world.create_topic("p1", 1)
        async with world.consumer() as consumer:
            consumer.subscribe(pattern="p[0-9]")
            await reading(world, consumer, lambda: consumer.assignment == {TopicPartition("p1", 0)})
            await world.create_topic("p2", 2)
            await world.create_topic("p22", 2)
            await reading(world, consumer, lambda: len(consumer.assignment) == 3)
            assert consumer.subscription == {"p1", "p2"}
            await world.delete_topic("p1")
            await reading(world, consumer, lambda: consumer.assignment == {TopicPartition("p2", p) for p in range(2)})

    play(story)


def test_new_partitions_and_topics_that_appear_are_shared_out() -> None:
    async def story(world: GroupWorld) -> None:
        first = world.reader(topics=[TOPIC, "later"], allow_auto_create_topics=False)
        second = world.reader(allow_auto_create_topics=False)
        await world.until_shared(first, second)
        async with world.admin() as admin:
            assert await admin.create_partitions({TOPIC: 6}) == {TOPIC: None}
        await world.until_shared(first, second, partitions=6)
        await world.create_topic("later", 2)
        await world.until(lambda: {tp.topic for tp in first.assigned} == {TOPIC, "later"}, "the new topic is read")
        await first.stop()
        await second.stop()

    play(story)


async def reading(world: GroupWorld, consumer: Any, condition: Any) -> None:
    """Read until the condition holds."""
    deadline = world.loop.time() + 60
    while not condition():
        assert world.loop.time() < deadline
        await consumer.getmany(timeout_ms=100)


def test_a_consumer_subscribes_anew_and_unsubscribes() -> None:
    async def story(world: GroupWorld) -> None:
        await world.create_topic("u", 1)
        async with world.consumer(partition_assignment_strategy=["cooperative-sticky"]) as consumer:
            diary = Diary()
            consumer.subscribe([TOPIC], listener=diary)
            await reading(world, consumer, lambda: len(consumer.assignment) == PARTITIONS)
            consumer.subscribe(["u"], listener=diary)
            await reading(world, consumer, lambda: consumer.assignment == {TopicPartition("u", 0)})
            assert diary.told() == ["assigned", "revoked", "assigned"]
            await consumer.unsubscribe()
            assert (consumer.assignment, consumer.subscription, diary.owned) == (set(), set(), set())
            async with world.admin() as admin:
                described = (await admin.describe_groups([GROUP]))[GROUP]
                assert not isinstance(described, KafkaError)
                assert described.state == "Empty"
            consumer.assign([TopicPartition("u", 0)])
            with pytest.raises(RuntimeError, match="assigned manually"):
                consumer.subscribe([TOPIC])

    play(story)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_is_no_longer_subscribed_to_may_be_deleted_for_good(protocol: str) -> None:
    """Whoever asks for a topic brings it back where topics are created because they are asked for."""

    async def story(world: GroupWorld) -> None:
        await world.create_topic("old", 1)
        async with world.consumer(metadata_max_age_ms=5000, group_protocol=protocol) as consumer:
            consumer.subscribe(["old"])
            await reading(world, consumer, lambda: consumer.assignment == {TopicPartition("old", 0)})
            consumer.subscribe([TOPIC])
            await reading(world, consumer, lambda: len(consumer.assignment) == PARTITIONS)
            await world.delete_topic("old")
            until = asyncio.get_running_loop().time() + 30
            await reading(world, consumer, lambda: asyncio.get_running_loop().time() > until)
            assert "old" not in await consumer.list_topics()
            assert len(consumer.assignment) == PARTITIONS

    play(story)


def test_a_cancelled_read_breaks_no_rebalance() -> None:
    async def story(world: GroupWorld) -> None:
        other = world.reader()
        await world.until_shared(other)
        async with world.consumer() as consumer:

            class Slow(Diary):
                async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
                    await asyncio.sleep(1)
                    await super().on_partitions_revoked(revoked)

            diary = Slow()
            consumer.subscribe([TOPIC], listener=diary)
            deadline = world.loop.time() + 30
            while len(diary.owned) != 2:
                assert world.loop.time() < deadline
                try:
                    await asyncio.wait_for(consumer.getone(), 0.13)
                except TimeoutError:
                    continue
            assert diary.told(empty=True) == ["assigned"]
            await world.until_shared(other, await_member(consumer))
        await other.stop()

    play(story)


def await_member(consumer: Any) -> Any:
    """What `until_shared` wants to know of a member that is no Reader."""

    class Member:
        @property
        def assigned(self) -> set[TopicPartition]:
            return set(consumer.assignment)

    return Member()


def test_two_tasks_may_read_one_consumer() -> None:
    async def story(world: GroupWorld) -> None:
        values = await world.produce(200)
        async with world.consumer() as consumer:
            consumer.subscribe([TOPIC])
            seen: list[bytes | None] = []

            async def work() -> None:
                while len(seen) < 200:
                    for records in (await consumer.getmany(timeout_ms=500, max_records=7)).values():
                        seen.extend(record.value for record in records)

            await asyncio.gather(work(), work())
            assert len(seen) == 200
            assert set(seen) == values

    play(story)


def test_a_listener_that_fails_is_told_of_by_the_read_and_the_member_goes_on() -> None:
    async def story(world: GroupWorld) -> None:
        await world.produce(4)
        async with world.consumer() as consumer:

            class Failing(Diary):
                def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
                    super().on_partitions_assigned(assigned)
                    raise LookupError("no place to put them")

            consumer.subscribe([TOPIC], listener=Failing())
            with pytest.raises(LookupError, match="no place"):
                while True:
                    await consumer.getmany(timeout_ms=1000)
            assert await consumer.getone()
            assert len(consumer.assignment) == PARTITIONS

    play(story)


def test_a_listener_may_seek_and_commit_but_not_read() -> None:
    async def story(world: GroupWorld) -> None:
        await world.produce(40)
        async with world.consumer(enable_auto_commit=False) as consumer:
            place = TopicPartition(TOPIC, 1)
            errors: list[Exception] = []

            class Seeking(Diary):
                async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:  # type: ignore[override]
                    for tp in assigned:
                        consumer.seek(tp, 9)
                    for forbidden in (consumer.getmany, consumer.unsubscribe):
                        try:
                            await forbidden()
                        except RuntimeError as error:
                            errors.append(error)

                async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
                    await consumer.commit()

            consumer.subscribe([TOPIC], listener=Seeking())
            seen = [await consumer.getone() for _ in range(4)]
            assert {(r.partition, r.offset) for r in seen} == {(p, 9) for p in range(PARTITIONS)}
            assert [str(error).partition(":")[0] for error in errors] == [
                "a rebalance listener must not read records or close the consumer"
            ] * 2
            await consumer.unsubscribe()
            assert (await world.committed())[place] == 10

    play(story)


def test_closing_in_the_middle_of_a_rebalance_waits_for_nobody() -> None:
    async def story(world: GroupWorld) -> None:
        slow = world.reader()
        await world.until_shared(slow)
        slow.is_asleep = True
        consumer = world.consumer()
        await consumer.start()
        consumer.subscribe([TOPIC])
        assert await consumer.getmany(timeout_ms=1000) == {}
        began = world.loop.time()
        await consumer.close()
        assert world.loop.time() - began < 1
        slow.is_asleep = False
        await world.until_shared(slow)
        await slow.stop()

    play(story)


OLD = {
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.JOIN_GROUP: 0,
    ApiKey.SYNC_GROUP: 0,
    ApiKey.HEARTBEAT: 0,
    ApiKey.LEAVE_GROUP: 0,
    ApiKey.OFFSET_COMMIT: 1,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.LIST_GROUPS: 0,
    ApiKey.DESCRIBE_GROUPS: 0,
}


def test_versions_of_kafka_0_9_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    told = client_connection.versions_told

    def told_by_an_old_one(response: ApiVersionsResponse) -> dict[int, Versions]:
        return {key: Versions(0, OLD.get(ApiKey(key), versions.last)) for key, versions in told(response).items()}

    monkeypatch.setattr(client_connection, "versions_told", told_by_an_old_one)

    async def story(world: GroupWorld) -> None:
        readers = [world.reader(session_timeout_ms=10_000) for _ in range(2)]
        await world.until_shared(*readers)
        await read_all(world, await world.produce(100), *readers)
        async with world.admin() as admin:
            assert [listing.group_id for listing in await admin.list_groups()] == [GROUP]
            described = (await admin.describe_groups([GROUP]))[GROUP]
            assert not isinstance(described, KafkaError)
            assert len(described.members) == 2
        for reader in readers:
            await reader.stop()
        async with world.consumer() as consumer:
            offsets = await consumer.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)])
            assert sum(at.offset for at in offsets.values() if at is not None) == 100
        with pytest.raises(KafkaError) as caught:
            async with world.consumer(group_instance_id="static") as consumer:
                consumer.subscribe([TOPIC])
                await consumer.getone()
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION

    play(story)


def test_what_a_group_needs_is_asked_for() -> None:
    async def story(world: GroupWorld) -> None:
        async with world.consumer() as consumer:
            with pytest.raises(ValueError, match="subscribe requires topics or a pattern"):
                consumer.subscribe([])
            with pytest.raises(TypeError, match="list of names"):
                consumer.subscribe("t")
            consumer.subscribe([TOPIC])
            with pytest.raises(RuntimeError, match="subscribed"):
                consumer.assign([TopicPartition(TOPIC, 0)])
            await consumer.unsubscribe()
            consumer.subscribe(pattern="no such topic")
            with pytest.raises(RuntimeError, match="subscribed"):
                consumer.assign([TopicPartition(TOPIC, 0)])
            assert await consumer.getmany(timeout_ms=1000) == {}
            await consumer.unsubscribe()
            consumer.assign([TopicPartition(TOPIC, 0)])
        for settings, message in (
            ({"heartbeat_interval_ms": 10_000, "session_timeout_ms": 9_000}, "less than"),
            ({"group_instance_id": ""}, "empty"),
            ({"partition_assignment_strategy": ["rank"]}, "unknown assignor"),
            ({"group_protocol": "newest"}, "Expected classic or consumer"),
            ({"group_remote_assignor": "range"}, "group_remote_assignor cannot be set with group_protocol='classic'"),
            ({"group_protocol": "consumer", "session_timeout_ms": 9_000}, "session_timeout_ms cannot be set"),
            ({"group_protocol": "consumer", "partition_assignment_strategy": ["range"]}, "strategy cannot be set"),
            ({"group_id": None}, "requires a group_id"),
        ):
            with pytest.raises(ValueError, match=message):
                world.consumer(**settings)  # type: ignore[arg-type]

    play(story)


def test_a_mistake_in_the_background_is_told_by_the_next_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Heartbeats, now: float) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Heartbeats, "_beat", fail)

    async def story(world: GroupWorld) -> None:
        async with world.consumer() as consumer:
            consumer.subscribe([TOPIC])
            with pytest.raises(ZeroDivisionError):
                await asyncio.wait_for(consumer.getone(), 10)

    play(story)
