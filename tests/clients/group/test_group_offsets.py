"""What members commit, by hand and by themselves; how stale members are fenced; groups and offsets through Admin."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.clients.group.group_world import GROUP, PARTITIONS, TOPIC, GroupWorld, play

from barnabas.clients import OffsetAndMetadata
from barnabas.clients.admin import GroupDescription
from barnabas.clients.cluster import ClusterView
from barnabas.clients.connection import BrokerConnection
from barnabas.clients.consumer import Consumer
from barnabas.clients.errors import CommitFailedError, NoOffsetError, RebalanceInProgressError
from barnabas.clients.offset_reset import ResetKind, ResetTarget, plan_reset, require_inactive
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.protocol.schema import ZERO_UUID
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.machines import BOOTSTRAP

T0 = TopicPartition(TOPIC, 0)
ALL = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]


async def take(consumer: Any, count: int) -> list[Any]:
    async with asyncio.timeout(60):
        return [await consumer.getone() for _ in range(count)]


def test_positions_are_committed_with_their_leader_epoch_or_offsets_with_metadata() -> None:
    async def story(world: GroupWorld) -> None:
        await world.produce(40)
        async with world.consumer(enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC])
            assert await consumer.committed(ALL) == dict.fromkeys(ALL)
            await take(consumer, 40)
            await consumer.commit()
            assert await consumer.committed([T0]) == {T0: OffsetAndMetadata(10, "", 0)}
            await consumer.commit({T0: 4})
            await consumer.commit({ALL[1]: OffsetAndMetadata(5, "why", 0)})
            assert await consumer.committed(ALL[:2]) == {
                T0: OffsetAndMetadata(4),
                ALL[1]: OffsetAndMetadata(5, "why", 0),
            }
            with pytest.raises(KafkaError) as caught:
                await consumer.commit({T0: OffsetAndMetadata(4, "x" * 5000)})
            assert caught.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
        async with world.consumer() as consumer:
            consumer.subscribe([TOPIC])
            assert {(r.partition, r.offset) for r in await take(consumer, 11)} >= {(0, 4), (1, 5)}

    play(story)


@pytest.mark.parametrize(("is_known", "version"), [(True, 10), (False, 9)])
def test_offsets_go_by_topic_id_when_that_is_known(
    monkeypatch: pytest.MonkeyPatch, is_known: bool, version: int
) -> None:
    versions = set()
    send = BrokerConnection.send

    def noted(connection: BrokerConnection, request: Any, number: int | None = None, **options: Any) -> Any:
        if isinstance(request, OffsetCommitRequest | OffsetFetchRequest):
            versions.add((type(request), number))
        return send(connection, request, number, **options)

    async def story(world: GroupWorld) -> None:
        async with world.consumer(enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC])
            await world.produce(40)
            await take(consumer, 40)
            versions.clear()
            await consumer.commit({T0: OffsetAndMetadata(4, "why"), ALL[1]: 5})
            assert await consumer.committed(ALL[:2]) == {T0: OffsetAndMetadata(4, "why"), ALL[1]: OffsetAndMetadata(5)}
        assert versions == {(OffsetCommitRequest, version), (OffsetFetchRequest, version)}

    monkeypatch.setattr(BrokerConnection, "send", noted)
    if not is_known:
        monkeypatch.setattr(ClusterView, "topic_id", lambda *_: ZERO_UUID)
    play(story)


def test_auto_commit_happens_at_intervals_and_covers_what_was_returned_before() -> None:
    async def story(world: GroupWorld) -> None:
        await world.produce(40)
        async with world.consumer(auto_commit_interval_ms=1_000) as consumer:
            consumer.subscribe([TOPIC])
            await take(consumer, 40)
            assert await world.committed() == {}
            await asyncio.sleep(1.5)
            assert await world.committed() == {}, "nobody has read since"
            await consumer.getmany(timeout_ms=100)
            await asyncio.sleep(0.5)
            assert sum((await world.committed()).values()) == 40
            await world.produce(4)
            await consumer.getone()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(take(consumer, 100), 3)
            assert sum((await world.committed()).values()) == 44, "a waiting reader commits too"

    play(story)


def test_auto_commit_covers_everything_at_a_rebalance_and_at_the_end() -> None:
    async def story(world: GroupWorld) -> None:
        settings: dict[str, Any] = {
            "auto_commit_interval_ms": 1_000_000,
            "partition_assignment_strategy": ["cooperative-sticky"],
        }
        first = world.reader(**settings)
        await world.produce(100)
        await world.until(lambda: len(first.records) == 100, "all is read")
        second = world.reader(**settings)
        await world.until_shared(first, second)
        assert sum((await world.committed()).values()) == 100
        await world.produce(100)
        await world.until(lambda: len(first.records) + len(second.records) == 200, "all is read")
        await first.stop()
        await second.stop()
        assert sum((await world.committed()).values()) == 200

    play(story)


class ProcessingError(Exception):
    """A record could not be processed."""


async def fail_at(consumer: Consumer, offset: int) -> None:
    async for record in consumer:
        if record.offset == offset:
            raise ProcessingError


async def wait_at(consumer: Consumer, offset: int) -> None:
    async for record in consumer:
        if record.offset == offset:
            await asyncio.sleep(3600)


async def fail_in_a_batch(consumer: Consumer, offset: int) -> None:
    """Of records 2, 3, …, which one read returned, the one at `offset` cannot be processed."""
    await consumer.getmany(timeout_ms=60_000, max_records=2)
    assert offset < 2 + len((await consumer.getmany(timeout_ms=60_000))[T0])
    raise ProcessingError


async def fail_after_a_commit(consumer: Consumer, offset: int) -> None:
    await consumer.getmany(timeout_ms=60_000, max_records=2)
    await consumer.getmany(timeout_ms=60_000)
    await consumer.commit({T0: offset})
    raise ProcessingError


async def fail_after_a_seek(consumer: Consumer, offset: int) -> None:
    await consumer.getmany(timeout_ms=60_000)
    consumer.seek(T0, offset)
    raise ProcessingError


async def stop_at(consumer: Consumer, offset: int) -> None:
    async for record in consumer:
        if record.offset == offset - 1:
            return


@pytest.mark.parametrize("closing", ["async with", "finally"])
@pytest.mark.parametrize(
    ("work", "committed"),
    [(fail_at, 4), (wait_at, 4), (fail_in_a_batch, 2), (fail_after_a_commit, 4), (fail_after_a_seek, 4), (stop_at, 4)],
)
def test_closing_commits_the_records_that_were_processed(
    work: Callable[[Consumer, int], Awaitable[None]], committed: int, closing: str
) -> None:
    """A record whose processing raised, or was cancelled, is read again by the next member of the group."""

    async def run(consumer: Consumer) -> None:
        if closing == "async with":
            async with consumer:
                consumer.subscribe([TOPIC])
                await work(consumer, 4)
            return
        await consumer.start()
        try:
            consumer.subscribe([TOPIC])
            await work(consumer, 4)
        finally:
            await consumer.close()

    async def story(world: GroupWorld) -> None:
        await world.produce(10, partitions=1)
        task = asyncio.create_task(run(world.consumer(auto_commit_interval_ms=1_000_000)))
        if work is wait_at:
            await asyncio.sleep(60)
            task.cancel()
        with suppress(ProcessingError, asyncio.CancelledError):
            await task
        assert (await world.committed()).get(T0) == committed

    play(story)


def test_without_auto_commit_nothing_is_committed_by_itself() -> None:
    async def story(world: GroupWorld) -> None:
        reader = world.reader(enable_auto_commit=False)
        await world.produce(40)
        await world.until(lambda: len(reader.records) == 40, "all is read")
        await reader.stop()
        assert await world.committed() == {}

    play(story)


@pytest.mark.parametrize("name", ["range", "cooperative-sticky"])
def test_a_member_that_was_thrown_out_cannot_commit(name: str) -> None:
    async def story(world: GroupWorld) -> None:
        await world.produce(40)
        settings: dict[str, Any] = {"enable_auto_commit": False, "partition_assignment_strategy": [name]}
        async with world.consumer(max_poll_interval_ms=2_000, **settings) as late:
            late.subscribe([TOPIC])
            await take(late, 40)
            other = world.reader(**settings)
            await world.until_shared(other)
            with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
                await late.commit()
            assert await world.committed() == {}
            await late.getmany(timeout_ms=3_000)
            await world.until(lambda: len(late.assignment) == len(other.assigned) == 2, "it is back")
            await late.commit()
            await other.stop()

    play(story)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_a_member_read_before_it_was_thrown_out_is_in_no_transaction(protocol: str) -> None:
    """Another may have copied it meanwhile, and the group may even be empty again."""

    async def story(world: GroupWorld) -> None:
        await world.produce(40)
        settings: dict[str, Any] = {"enable_auto_commit": False, "group_protocol": protocol}
        late = world.consumer(max_poll_interval_ms=2_000, **settings)
        async with late, Producer(BOOTSTRAP, transactional_id="copier", rng=random.Random(3)) as producer:
            late.subscribe([TOPIC])
            await take(late, 40)
            sender = late.group_metadata()
            assert sender.generation > 0

            async def copy(refusals: set[ErrorCode]) -> None:
                with pytest.raises(KafkaError) as refused:
                    async with producer.transaction() as transaction:
                        await transaction.send_offsets({T0: 1}, late.group_metadata())
                assert refused.value.code in refusals

            other = world.reader(**settings)
            await world.until_shared(other)
            assert late.group_metadata() == sender
            await copy({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
            await other.stop()
            await copy({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
            assert await world.committed() == {}
            async with asyncio.timeout(60):
                while (now := late.group_metadata()) == sender or now.generation == 0:
                    await late.getmany(timeout_ms=200)
            async with producer.transaction() as transaction:
                await transaction.send_offsets({T0: 1}, late.group_metadata())
            await late.unsubscribe()
            await copy({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
            late.assign([T0])
            async with producer.transaction() as transaction:
                await transaction.send_offsets({T0: 2}, late.group_metadata())

    play(story)


def test_a_member_speaks_for_what_it_was_given_until_it_is_given_something_else() -> None:
    """A cooperative one reads on while the next generation begins behind its back."""

    async def story(world: GroupWorld) -> None:
        settings: dict[str, Any] = {
            "enable_auto_commit": False,
            "partition_assignment_strategy": ["cooperative-sticky"],
        }
        async with world.consumer(**settings) as consumer:
            consumer.subscribe([TOPIC])
            await world.produce(40)
            await take(consumer, 40)
            before, other, group = consumer.group_metadata(), world.reader(**settings), consumer._group
            assert group is not None
            async with asyncio.timeout(60):
                while group._exchange is None:
                    await asyncio.sleep(0.05)
                    await consumer.getmany()
            await world.until(group._exchange.done, "the next generation is there")
            assert consumer.group_metadata() == before
            await consumer.getmany()
            assert consumer.group_metadata().generation > before.generation
            await other.stop()

    play(story)


def test_a_commit_between_two_generations_is_refused_until_the_next_read() -> None:
    async def story(world: GroupWorld) -> None:
        await world.produce(40)
        async with world.consumer(enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC])
            await take(consumer, 40)
            slow = world.reader(enable_auto_commit=False)
            await asyncio.sleep(2)
            await consumer.commit({T0: 1})
            deadline = world.loop.time() + 20
            with pytest.raises(RebalanceInProgressError):
                while world.loop.time() < deadline:
                    await consumer.getmany()
                    await consumer.commit({T0: 2})
            await slow.stop()

    play(story)


def test_a_group_has_offsets_without_members() -> None:
    async def story(world: GroupWorld) -> None:
        await world.produce(40)
        async with world.consumer() as consumer:
            consumer.assign([T0])
            await take(consumer, 6)
        assert await world.committed() == {T0: 6}, "auto commit is for partitions assigned by hand, too"
        async with world.consumer() as consumer:
            consumer.assign([T0, ALL[1]])
            first = {(r.partition, r.offset) for r in await take(consumer, 14)}
            assert (0, 6) in first
            assert (0, 5) not in first
            assert (1, 0) in first

    play(story)


def test_without_an_offset_the_reset_policy_decides() -> None:
    async def story(world: GroupWorld) -> None:
        await world.produce(40)
        async with world.consumer(auto_offset_reset="none") as consumer:
            consumer.subscribe([TOPIC])
            with pytest.raises(NoOffsetError):
                while True:
                    await consumer.getmany(timeout_ms=1000)
        async with world.consumer(auto_offset_reset="latest") as consumer:
            consumer.subscribe([TOPIC])
            while not consumer.assignment:
                await consumer.getmany(timeout_ms=100)
            assert [await consumer.position(tp) for tp in ALL] == [10] * PARTITIONS

    play(story)


def test_no_partition_waits_for_the_offset_of_one_that_is_not_assigned_any_more() -> None:
    """An open transaction has the offset of the other one."""

    async def story(world: GroupWorld) -> None:
        kept, other = ALL[:2]
        await world.produce(8)
        producer = Producer(BOOTSTRAP, transactional_id="copier", rng=random.Random(1))
        async with producer, producer.transaction() as transaction, world.consumer() as consumer:
            await transaction.send_offsets({other: 1}, GROUP)
            consumer.assign([kept, other])
            assert await consumer.getmany(timeout_ms=2_000) == {}
            consumer.assign([kept])
            assert list(await consumer.getmany(timeout_ms=5_000)) == [kept]

    play(story)


def test_groups_are_listed_described_and_deleted() -> None:
    async def story(world: GroupWorld) -> None:
        readers = [world.reader(client_id=f"reader-{n}", partition_assignment_strategy=["sticky"]) for n in range(2)]
        await world.until_shared(*readers)
        await world.produce(40)
        await world.until(lambda: sum(len(reader.records) for reader in readers) == 40, "all is read")
        async with world.admin() as admin:
            await admin.alter_group_offsets("simple", {T0: 7})
            listed = await admin.list_groups()
            assert [(g.group_id, g.state, g.type) for g in listed] == [
                (GROUP, "Stable", "classic"),
                ("simple", "Empty", "classic"),
            ]
            assert [g.group_id for g in await admin.list_groups(states=["Empty"])] == ["simple"]
            assert len(await admin.list_groups(types=["classic"])) == 2
            described = await admin.describe_groups([GROUP, "simple", "nobody"])
            group, simple, nobody = described[GROUP], described["simple"], described["nobody"]
            assert isinstance(group, GroupDescription)
            assert isinstance(simple, GroupDescription)
            assert (group.state, group.assignor, simple.state) == ("Stable", "sticky", "Empty")
            assert sorted(tp for m in group.members for tp in m.assigned) == ALL
            assert {m.client_id for m in group.members} == {"reader-0", "reader-1"}
            assert {m.topics for m in group.members} == {frozenset({TOPIC})}
            assert isinstance(nobody, KafkaError)
            assert nobody.code is ErrorCode.GROUP_ID_NOT_FOUND
            outcomes = await admin.delete_groups([GROUP, "simple", "nobody"])
            assert [error.code if error else None for error in outcomes.values()] == [
                ErrorCode.NON_EMPTY_GROUP,
                None,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ]
            for reader in readers:
                await reader.stop()
            assert await admin.delete_groups([GROUP]) == {GROUP: None}
            assert await admin.list_groups() == []

    play(story)


def test_offsets_of_many_groups_are_listed_altered_and_deleted() -> None:
    async def story(world: GroupWorld) -> None:
        async with world.admin() as admin:
            wanted = {f"g{n}": {T0: n, ALL[1]: n + 1} for n in range(20)}
            for group_id, offsets in wanted.items():
                assert await admin.alter_group_offsets(group_id, offsets) == dict.fromkeys(offsets)
            listed = await admin.list_group_offsets([*wanted, "nobody"])
            assert listed.pop("nobody") == {}
            assert {g: {tp: at.offset for tp, at in o.items()} for g, o in listed.items()} == wanted  # type: ignore[union-attr]
            some = await admin.list_group_offsets(["g3"], [ALL[1], ALL[2]])
            assert some == {"g3": {ALL[1]: OffsetAndMetadata(4)}}
            assert await admin.delete_group_offsets("g3", [T0]) == {T0: None}
            assert await admin.list_group_offsets(["g3"]) == {"g3": {ALL[1]: OffsetAndMetadata(4)}}
            with pytest.raises(KafkaError) as caught:
                await admin.delete_group_offsets("nobody", [T0])
            assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
            reader = world.reader()
            await world.until_shared(reader)
            refused = (await admin.delete_group_offsets(GROUP, [T0]))[T0]
            assert refused is not None
            assert refused.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            stale = (await admin.alter_group_offsets(GROUP, {T0: 1}))[T0]
            assert stale is not None
            assert stale.code is ErrorCode.UNKNOWN_MEMBER_ID
            await reader.stop()

    play(story)


def test_members_can_be_removed() -> None:
    async def story(world: GroupWorld) -> None:
        static, dynamic = world.reader(group_instance_id="a"), world.reader()
        await world.until_shared(static, dynamic)
        async with world.admin() as admin:
            static.kill()
            dynamic.is_asleep = True
            assert await admin.remove_members(GROUP, ["a"]) == {"a": None}
            gone = (await admin.remove_members(GROUP, ["a"]))["a"]
            assert gone is not None
            assert gone.code is ErrorCode.UNKNOWN_MEMBER_ID
            assert len(await admin.remove_members(GROUP)) == 1
        dynamic.is_asleep = False
        await world.until_shared(dynamic)
        await dynamic.stop()

    play(story)


def test_lag_is_told_of_groups_with_and_without_members() -> None:
    async def story(world: GroupWorld) -> None:
        await world.create_topic("gone", 1)
        await world.produce(40)
        reader = world.reader(topics=[TOPIC], auto_commit_interval_ms=1_000)
        await world.until(lambda: len(reader.records) == 40, "all is read")
        async with world.admin() as admin:
            await admin.alter_group_offsets("down", {T0: 3, TopicPartition("gone", 0): 1})
            await world.delete_topic("gone")
            await asyncio.sleep(3)
            reader.is_asleep = True
            await world.produce(8)
            lags = await admin.group_lag()
            down = [lag for lag in lags if lag.group_id == "down"]
            assert [(lag.partition, lag.committed, lag.end, lag.lag, lag.member_id) for lag in down] == [
                (T0, 3, 12, 9, None)
            ]
            up = [lag for lag in lags if lag.group_id == GROUP]
            assert [(lag.partition, lag.lag) for lag in up] == [(tp, 2) for tp in ALL]
            assert {lag.client_id for lag in up} == {"barnabas-consumer"}
            with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
                await admin.group_lag(["nobody"])
        await reader.stop()

    play(story)


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (ResetTarget(ResetKind.EARLIEST), 0),
        (ResetTarget(ResetKind.LATEST), 10),
        (ResetTarget(ResetKind.CURRENT), 6),
        (ResetTarget(ResetKind.OFFSET, 4), 4),
        (ResetTarget(ResetKind.OFFSET, 400), 10),
        (ResetTarget(ResetKind.SHIFT, -2), 4),
        (ResetTarget(ResetKind.SHIFT, -20), 0),
        (ResetTarget(ResetKind.SHIFT, 3), 9),
        (ResetTarget(ResetKind.TIME, 0), 0),
        (ResetTarget(ResetKind.TIME, 4_000_000_000_000), 10),
    ],
    ids=str,
)
def test_where_a_group_is_reset_to(target: ResetTarget, after: int) -> None:
    async def story(world: GroupWorld) -> None:
        await world.produce(40)
        async with world.admin() as admin:
            await admin.alter_group_offsets(GROUP, {T0: 6})
            assert await plan_reset(admin, GROUP, None, target) == [(T0, 6, after)]
            if target.kind is ResetKind.SHIFT:
                with pytest.raises(ValueError, match="t-1"):
                    await plan_reset(admin, GROUP, ALL, target)
            if target.kind is ResetKind.CURRENT:
                assert [step.after for step in await plan_reset(admin, GROUP, ALL, target)] == [6, 10, 10, 10]

    play(story)


def test_an_active_group_is_not_reset() -> None:
    async def story(world: GroupWorld) -> None:
        reader = world.reader()
        await world.until_shared(reader)
        async with world.admin() as admin:
            with pytest.raises(
                KafkaError, match=r"if the group 'readers' is inactive, but the current state is Stable\."
            ):
                await require_inactive(admin, GROUP)
            await require_inactive(admin, "nobody")
        await reader.stop()

    play(story)
