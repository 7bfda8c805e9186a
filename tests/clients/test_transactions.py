"""Our own producer's transactions, against a broker in a simulated world."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.coordinator.transaction.producers import committed_offset, committed_values, find
from tests.server.data_plane import DataPlane, play

from barnabas.clients import Consumer, Producer, TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.simulation.machines import HOST, PORT

ADDRESS = f"{HOST}:{PORT}"
FIRST = TopicPartition("t", 0)


class StopHereError(Exception):
    """What a program may raise in the middle."""


def producer(plane: DataPlane, transactional_id: str = "x", **options: object) -> Producer:
    common = {"rng": plane.world.random, "wall_clock_ms": plane.now_ms, **options}
    return Producer(ADDRESS, transactional_id=transactional_id, **common)  # type: ignore[arg-type]


def test_a_block_is_a_transaction() -> None:
    async def talk(plane: DataPlane) -> None:
        async with producer(plane) as mine:
            for number in range(6):
                try:
                    async with mine.transaction():
                        future = await mine.send("t", b"%d" % number, partition=0)
                        await mine.send("t", b"%d" % number, partition=1)
                        if number % 3 == 1:
                            raise StopHereError
                    assert future.done()
                except StopHereError:
                    pass
            async with mine.transaction():
                pass
            with pytest.raises(RuntimeError, match="no transaction is open"):
                await mine.send("t", b"outside")
        await plane.until(lambda: not plane.state.transactions.coordinator.find("x").is_busy)  # type: ignore[union-attr]
        for index in (0, 1):
            assert await committed_values(plane, index=index) == [b"0", b"2", b"3", b"5"]

    play(talk)


def test_offsets_move_with_the_records() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("out")
        async with producer(plane, "source") as source, source.transaction():
            for number in range(10):
                await source.send("t", b"%d" % number, partition=0)
        consumer = Consumer(
            ADDRESS,
            group_id="g",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            rng=plane.world.random,
        )
        async with consumer, producer(plane) as mine:
            consumer.subscribe(["t"])
            taken = 0
            async for record in consumer:
                taken += 1
                async with mine.transaction() as transaction:
                    await mine.send("out", record.value, partition=0)
                    await transaction.send_offsets({FIRST: record.offset + 1}, consumer.group_metadata())
                if taken == 10:
                    break
        await plane.until(lambda: plane.partition("out").log.last_stable_offset == 20)
        assert await committed_values(plane, topic="out") == [b"%d" % number for number in range(10)]
        while (found := await committed_offset(plane, "g")) != (10, ErrorCode.NONE):
            assert found[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
            await asyncio.sleep(0.01)

    play(talk, settings={"group.initial.rebalance.delay.ms": "0"})


def test_a_group_may_be_named() -> None:
    async def talk(plane: DataPlane) -> None:
        await find(await plane.connect(), "g")
        async with producer(plane) as mine:
            with pytest.raises(StopHereError):
                async with mine.transaction() as transaction:
                    await transaction.send_offsets({FIRST: 7}, "g")
                    raise StopHereError
            async with mine.transaction() as transaction:
                await transaction.send_offsets({FIRST: 3}, "g")
        await plane.until(lambda: not plane.state.transactions.coordinator.find("x").is_busy)  # type: ignore[union-attr]
        assert await committed_offset(plane, "g") == (3, ErrorCode.NONE)

    play(talk)


def test_who_is_fenced_is_told_and_stays_so() -> None:
    async def talk(plane: DataPlane) -> None:
        zombie = producer(plane)
        async with zombie, producer(plane) as heir:
            with pytest.raises(KafkaError) as caught:
                async with zombie.transaction():
                    await zombie.send("t", b"zombie", partition=0)
            assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
            with pytest.raises(KafkaError):
                async with zombie.transaction():
                    pass
            async with heir.transaction():
                await heir.send("t", b"heir", partition=0)
        await plane.until(lambda: plane.partition().log.last_stable_offset == 2)
        assert await committed_values(plane) == [b"heir"]

    play(talk)


def test_records_that_are_refused_end_the_transaction_and_nothing_else() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("small", max_message_bytes="200")
        async with producer(plane) as mine:
            with pytest.raises(KafkaError) as caught:
                async with mine.transaction():
                    await mine.send("t", b"with it", partition=0)
                    await mine.send("small", bytes(1000), partition=0)
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            async with mine.transaction():
                await mine.send("t", b"later", partition=0)
                await mine.send("small", b"fits", partition=0)
        await plane.until(lambda: not plane.state.transactions.coordinator.find("x").is_busy)  # type: ignore[union-attr]
        assert await committed_values(plane) == [b"later"]
        assert await committed_values(plane, topic="small") == [b"fits"]

    play(talk)


async def test_without_an_id_there_are_no_transactions() -> None:
    with pytest.raises(RuntimeError, match="transactional_id"):
        Producer(ADDRESS).transaction()
    with pytest.raises(ValueError, match="acks"):
        Producer(ADDRESS, transactional_id="x", acks=1)
