"""Replicas of a broker: group commit, flushes by count and by age, directories that fail, the end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import pytest
from tests.server.data_plane import (
    DataPlane,
    at,
    batch,
    fetch,
    idempotent,
    only_fetched,
    only_produced,
    play,
    produce,
    values_in,
)

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.schema import ZERO_UUID
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication.leader_and_isr import LeaderAndIsrState
from barnabas.server.replication.partition import Partition
from barnabas.server.runtime.loop_sharing import ITEMS_PER_TURN, CountBudget, SlicedWork
from barnabas.simulation.disk import DiskFault
from barnabas.simulation.machines import WorkDelays
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producer_state import ProducerStateEntry, ProducerStateManager

SLOW_DISK = WorkDelays(usual=1.0)


def count_rounds(plane: DataPlane) -> list[str]:
    """Notes the lane of every job, and of every round of syncs, from now on."""
    work = plane.state.ports.work
    lanes: list[str] = []
    submit, sync = work.submit, work.sync

    def counted(lane: str, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        lanes.append(lane)
        submit(lane, job, done)

    def counted_sync(lane: str, files: Any, done: Callable[[Any, BaseException | None], None]) -> None:
        lanes.append(lane)
        sync(lane, files, done)

    pytest.MonkeyPatch().setattr(work, "submit", counted)
    pytest.MonkeyPatch().setattr(work, "sync", counted_sync)
    return lanes


def test_appends_that_arrive_while_the_disk_is_busy_share_the_next_round() -> None:
    async def talk(plane: DataPlane) -> None:
        rounds = count_rounds(plane)
        connections = [await plane.connect() for _ in range(40)]
        answers = [
            connection.send(produce(batch(b"v"), acks=-1, index=number % 2), 9)
            for number, connection in enumerate(connections)
        ]
        for answer in await asyncio.gather(*answers):
            assert only_produced(answer).error_code == ErrorCode.NONE
        assert [plane.partition("t", index).log.recovery_point for index in (0, 1)] == [20, 20]
        # One for who came first, one for all the others; a third if a request was late.
        assert 2 <= rounds.count("/data") <= 3

    play(talk, delays=SLOW_DISK)


def test_directories_do_not_wait_for_each_other() -> None:
    async def talk(plane: DataPlane) -> None:
        rounds = count_rounds(plane)
        for index in (0, 1):
            await plane.append(batch(b"v"), index=index, acks=-1)
        assert sorted(rounds) == ["/data", "/data2"]

    play(talk, settings={"log.dirs": "/data,/data2"})


def test_appends_of_acks_1_ask_for_no_flush_unless_the_topic_does() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("counted", flush_messages="3")
        rounds = count_rounds(plane)
        for _ in range(5):
            await plane.append(batch(b"v"))
        log = plane.partition("counted").log
        for number in (1, 2):
            await plane.append(batch(b"v"), topic="counted")
            assert (log.recovery_point, log.high_watermark) == (0, number)
        assert rounds == []
        await plane.append(batch(b"v"), topic="counted")
        assert log.recovery_point == 3, "before it is answered"
        assert plane.partition().log.recovery_point == 0

    play(talk)


@pytest.mark.parametrize("acks", [1, -1])
def test_an_answer_comes_after_the_flush_that_flush_messages_asks_for(acks: int) -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("safe", flush_messages="1")
        log = plane.partition("safe").log
        for number in range(3):
            await plane.append(batch(b"%d" % number), topic="safe", acks=acks)
            assert log.recovery_point == number + 1, "before it is answered"
        plane.world.broker.crash("A")
        await plane.world.broker.start()
        connection = await plane.connect()
        request = fetch(at(0), topic="safe")
        assert values_in(only_fetched(await connection.send(request, 12))) == [b"0", b"1", b"2"]

    play(talk, settings={"acks.all.durability": "page-cache"}, delays=WorkDelays(usual=0.5))


def test_producers_are_forgotten_after_the_time_that_is_set() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(idempotent(7, 0, 0))
        producers = plane.partition().log.producer_state.producers
        await asyncio.sleep(3_700)
        assert 7 in producers, "a day is the default"
        plane.state.dynamic_config.broker_config_changed({"producer.id.expiration.ms": "60000"}, per_broker=False)
        await plane.until(lambda: 7 not in producers, seconds=1000)
        await plane.append(idempotent(8, 0, 0))
        await asyncio.sleep(1)
        assert 8 in producers
        await plane.until(lambda: 8 not in producers, seconds=1000)

    play(talk)


def test_producers_are_remembered_for_as_long_as_the_file_says() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(idempotent(7, 0, 0))
        producers = plane.partition().log.producer_state.producers
        await plane.until(lambda: 7 not in producers, seconds=60)

    play(talk, settings={"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "500"})


def test_while_producers_are_forgotten_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a hundred thousand partitions, and one that is deleted meanwhile is no harm."""

    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("deleted")
        for index in range(2):
            await plane.append(idempotent(7, 0, 0), index=index)
        manager = plane.state.replica_manager
        first, second = (plane.partition(index=index).log.producer_state.producers for index in range(2))
        await asyncio.sleep(100)
        monkeypatch.setattr("barnabas.server.replication.replica_manager.CountBudget", lambda most=1: CountBudget(1))
        expiring = asyncio.ensure_future(manager.expire_producers())
        await asyncio.sleep(0)
        assert (7 in first, 7 in second) == (False, True)
        await manager.stop_replicas([plane.partition("deleted").topic_partition], delete=True)
        await expiring
        assert 7 not in second

    play(talk, settings={"producer.id.expiration.ms": "1000"})


def test_producers_of_one_partition_expire_in_several_turns() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(idempotent(7, 0, 0))
        state, count = plane.partition().log.producer_state, 10 * ITEMS_PER_TURN
        for producer_id in range(count):
            state.producers[producer_id] = ProducerStateEntry(producer_id)
        await asyncio.sleep(100)
        expiring = asyncio.ensure_future(plane.state.replica_manager.expire_producers())
        left = [count]
        while not expiring.done():
            await asyncio.sleep(0)
            left.append(len(state.producers))
        assert max(before - after for before, after in pairwise(left)) == ITEMS_PER_TURN
        assert left[-1] == 0

    play(talk, settings={"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "600000"})


def test_while_logs_are_looked_at_for_their_age_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(plane: DataPlane) -> None:
        topics = ("first", "deleted", "last")
        manager, asked = plane.state.replica_manager, list[str]()
        for topic in topics:
            await plane.create_topic(topic, flush_ms="1000000")
            await plane.append(batch(b"v"), topic=topic)
            plane.partition(topic).log.last_flush_ms = 0
        monkeypatch.setattr(manager.group_commit, "request", lambda one: asked.append(one.topic_partition.topic))
        monkeypatch.setattr("barnabas.server.replication.replica_manager.CountBudget", lambda most=1: CountBudget(1))
        flushing = asyncio.ensure_future(manager.flush_overdue())
        while not asked:
            await asyncio.sleep(0)
        assert asked == ["first"], "all in one turn"
        await manager.stop_replicas([plane.partition("deleted").topic_partition], delete=True)
        await flushing
        assert asked == ["first", "last"]

    play(talk)


def test_while_followers_are_looked_at_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(plane: DataPlane) -> None:
        manager, looked_at = plane.state.replica_manager, list[int]()
        for index in range(2):
            monkeypatch.setattr(plane.partition(index=index), "followers", object())
        monkeypatch.setattr(Partition, "shrink_isr", lambda one: looked_at.append(one.topic_partition.partition))
        monkeypatch.setattr("barnabas.server.replication.replica_manager.CountBudget", lambda most=1: CountBudget(1))
        shrinking = asyncio.ensure_future(manager.shrink_isrs())
        while not looked_at:
            await asyncio.sleep(0)
        assert looked_at == [0], "all in one turn"
        await shrinking
        assert looked_at == [0, 1]
        monkeypatch.undo()

    play(talk)


@pytest.mark.parametrize("work", ["flush_overdue", "shrink_isrs", "expire_producers"])
def test_a_partition_that_fails_keeps_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    done: list[str] = []

    def fail_once(*_: object) -> None:
        done.append(work)
        if len(done) == 1:
            raise ValueError("on purpose")

    async def talk(plane: DataPlane) -> None:
        manager = plane.state.replica_manager
        for index in range(2):
            partition = plane.partition(index=index)
            await plane.append(idempotent(7, 0, 0), index=index)
            partition.log.last_flush_ms = 0
            partition.log.config = replace(partition.log.config, flush_ms=0)
            monkeypatch.setattr(partition, "followers", object())
        monkeypatch.setattr(manager.group_commit, "request", fail_once)
        monkeypatch.setattr(Partition, "shrink_isr", fail_once)
        monkeypatch.setattr(ProducerStateManager, "remove_expired", fail_once)
        await getattr(manager, work)()
        monkeypatch.undo()
        assert done == [work] * 2

    play(talk)


def test_segments_of_a_test_may_be_smaller() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("small", segment_bytes="1048576", internal_segment_bytes="200")
        for _ in range(5):
            await plane.append(batch(b"v" * 50), topic="small")
        assert [segment.base_offset for segment in plane.partition("small").log.segments] == [0, 1, 2, 3, 4]

    play(talk)


@pytest.mark.parametrize("protocol", ["3.9-IV0", "3.0", "2.8", "0.11.0"])
@pytest.mark.parametrize("of_topic", [True, False])
def test_a_format_of_messages_counts_while_brokers_speak_an_old_protocol(protocol: str, of_topic: bool) -> None:
    async def talk(plane: DataPlane) -> None:
        settings: dict[str, Any] = {"message_format_version": "0.10.2"} if of_topic else {}
        await plane.create_topic("old", **settings)
        await plane.append(batch(b"v"), topic="old")
        (found,) = (one for _, one in plane.partition("old").log.active_segment.records.batches())
        assert found.magic == (1 if protocol in ("2.8", "0.11.0") else 2)

    settings = {"inter.broker.protocol.version": protocol}
    play(talk, settings=settings if of_topic else {**settings, "log.message.format.version": "0.10.2"})


def test_what_is_older_than_flush_ms_is_flushed() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("aged", flush_ms="5000")
        await plane.append(batch(b"v"), topic="aged")
        await plane.append(batch(b"v"))
        log = plane.partition("aged").log
        await asyncio.sleep(3)
        assert log.recovery_point == 0
        await asyncio.sleep(5)
        assert log.recovery_point == 1
        assert plane.partition().log.recovery_point == 0

    play(talk)


def test_records_are_durable_when_they_are_acknowledged() -> None:
    async def talk(plane: DataPlane) -> None:
        for number in range(5):
            await plane.append(batch(b"%d" % number), acks=-1)
        await plane.append(batch(b"unsafe"), acks=1)
        plane.world.broker.crash("A")
        await plane.world.broker.start()
        connection = await plane.connect()
        values = values_in(only_fetched(await connection.send(fetch(at(0)), 12)))
        assert values[:5] == [b"%d" % number for number in range(5)]
        assert values[5:] in ([], [b"unsafe"])

    for seed in range(10):
        play(talk, seed=seed)


def test_who_waits_for_the_disk_at_shutdown_is_answered_first() -> None:
    async def talk(plane: DataPlane) -> None:
        connection, reader = await plane.connect(), await plane.connect()
        log = plane.partition().log
        produced = connection.send(produce(batch(b"v"), acks=-1), 9)
        reading = reader.send(fetch(at(0, 1), max_wait_ms=600_000, min_bytes=1), 12)
        await plane.until(lambda: log.log_end_offset == 1)
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        await plane.world.broker.stop()
        assert only_produced(await produced).error_code == ErrorCode.NONE
        assert only_fetched(await reading).error_code == ErrorCode.NONE
        await plane.world.broker.start()

    play(talk, delays=SLOW_DISK)


def test_a_failing_fdatasync_fails_who_waits_for_it_and_takes_the_directory_offline() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(batch(b"v"), index=1, acks=-1)
        broken, sound = plane.partition("t", 0), plane.partition("t", 1)
        connection = await plane.connect()
        plane.world.broker.disk.faults.append(DiskFault("fdatasync", errno.EIO, path_contains=broken.log.path))
        answer = only_produced(await connection.send(produce(batch(b"v"), acks=-1), 9))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        plane.world.broker.disk.faults.clear()
        assert (broken.is_offline, sound.is_offline) == (True, False)
        for version, expected in (
            (5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (6, ErrorCode.KAFKA_STORAGE_ERROR),
            (12, ErrorCode.KAFKA_STORAGE_ERROR),
        ):
            assert only_fetched(await connection.send(fetch(at(0)), version)).error_code == expected
        answer = only_produced(await connection.send(produce(batch(b"v"), acks=1), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert only_produced(await connection.send(produce(batch(b"v"), index=1, acks=-1), 9)).base_offset == 1

    play(talk, settings={"log.dirs": "/data,/data2"})


def test_which_partitions_are_here() -> None:
    async def talk(plane: DataPlane) -> None:
        manager = plane.state.replica_manager
        assert {partition.topic_partition for partition in manager.partitions} == {("t", 0), ("t", 1)}
        for topic, index in (("t", 2), ("nothing", 0)):
            with pytest.raises(KafkaError) as caught:
                manager.get_leader_partition(topic, index)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = manager.get_leader_partition("t", 0)
        await manager.stop_replicas([partition.topic_partition], delete=False)
        assert manager.get_partition("t", 0) is None
        with pytest.raises(KafkaError) as caught:
            manager.get_leader_partition("t", 0)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.path in {log.path for log in plane.state.log_manager.logs.values()}

    play(talk)


def test_settings_of_a_topic_reach_its_partitions_while_they_run() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("other")
        manager = plane.state.replica_manager
        log, other = plane.partition().log, plane.partition("other").log
        changed = replace(log.config, flush_messages=2)
        manager._topic_log_config = lambda topic: changed
        manager.topic_config_changed("t")
        assert log.config is changed
        assert other.config is not changed
        await plane.append(batch(b"a", b"b"))
        await plane.until(lambda: log.recovery_point == 2, seconds=1)
        manager.topic_config_changed(None)
        assert other.config is changed

    play(talk)


def test_for_the_settings_of_a_topic_no_other_is_looked_at() -> None:
    """Thousands of topics may be made in one go, with settings of their own."""

    async def talk(plane: DataPlane) -> None:
        manager = plane.state.replica_manager
        log = plane.partition().log
        manager._partitions["elsewhere", 0] = cast(Any, None)
        changed = replace(log.config, flush_messages=2)
        manager._topic_log_config = lambda topic: changed
        manager.topic_config_changed("new")
        manager.topic_config_changed("t")
        assert log.config is changed
        del manager._partitions["elsewhere", 0]
        await manager.stop_replicas([plane.partition().topic_partition], delete=False)
        again = manager._topic_log_config = lambda topic: replace(changed, flush_messages=3)
        manager.topic_config_changed("t")
        assert log.config is changed
        assert plane.partition(index=1).log.config == again("t")

    play(talk)


def test_the_id_of_a_topic_may_come_with_a_later_order() -> None:
    """From a controller of an older protocol, then from one that knows ids."""
    name, first, second, other = TopicPartition("old", 0), ZERO_UUID, UUID(int=7), UUID(int=8)

    async def talk(plane: DataPlane) -> None:
        manager = plane.state.replica_manager

        async def order(topic_id: UUID, epoch: int) -> None:
            await manager.prepare_logs({name: topic_id})
            manager.become_leader(LeaderAndIsrState(name, topic_id, 1, epoch, 0, (1,), (1,), is_new=epoch == 1))

        await order(first, 1)
        partition = manager.get_partition(*name)
        assert partition is not None and (partition.topic_id, partition.log.topic_id) == (ZERO_UUID, None)
        await order(second, 2)
        assert (partition.topic_id, partition.log.topic_id) == (second, second)
        await order(first, 3)
        assert (partition.topic_id, partition.leader_epoch) == (second, 3), "an older one is no other topic's"
        with pytest.raises(KafkaError) as refused:
            await order(other, 4)
        assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID

    play(talk)


def test_other_settings_of_all_brokers_reach_one_topic_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a topic has of its own is worked out anew for each, of which there may be ten thousand."""
    held: list[Any] = []

    async def talk(plane: DataPlane) -> None:
        manager, worked_out = plane.state.replica_manager, []
        for name in ("a", "b", "c"):
            await plane.create_topic(name, 3, retention_ms="7")
        changed = {name: replace(plane.partition(name).log.config, retention_ms=8) for name in ("a", "b", "c", "t")}
        later = replace(changed["c"], retention_ms=9)

        def topic_log_config(name: str) -> LogConfig:
            worked_out.append(name)
            return changed[name]

        with monkeypatch.context() as patch:
            patch.setattr(manager, "_topic_log_config", topic_log_config)
            patch.setattr(SlicedWork, "run", lambda _, steps, done: held.append(steps))
            manager.topic_config_changed(None)
            (steps,) = held
            next(steps)
            assert len(worked_out) == 1
            changed["c"] = later
            manager.topic_config_changed("c")
            for partition in range(3):
                await manager.stop_replicas([TopicPartition("b", partition)], delete=False)
            for _ in steps:
                pass
        assert sorted(worked_out) in (["a", "b", "c", "c", "t"], ["a", "c", "c", "t"])
        for name in ("a", "c"):
            assert {plane.partition(name, index).log.config for index in range(3)} == {changed[name]}

    play(talk)
