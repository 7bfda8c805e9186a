"""Our own producer's transactions, against a broker in a simulated world."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.coordinator.transaction.producers import committed_offset, committed_values, find, is_busy
from tests.server.data_plane import DataPlane, play

from barnabas.clients import Consumer, Producer, TopicPartition
from barnabas.clients.accumulator import ProducerBatch
from barnabas.clients.group.coordinator_link import CoordinatorLink
from barnabas.clients.sender import Sender
from barnabas.clients.transactions import TV_2, TransactionManager
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.server.coordinator.transaction.transaction_marker_channel_manager import MarkerWriter
from barnabas.server.metadata.cluster_features import TRANSACTION_VERSION, ClusterFeatures, FeatureUpdate, UpgradeType
from barnabas.simulation.machines import HOST, PORT

ADDRESS = f"{HOST}:{PORT}"
FIRST = TopicPartition("t", 0)


class StopHereError(Exception):
    """What a program may raise in the middle."""


def producer(plane: DataPlane, transactional_id: str = "x", **options: Any) -> Producer:
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
        await plane.until(lambda: not is_busy(plane))
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
        await plane.until(lambda: not is_busy(plane))
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
        await plane.until(lambda: not is_busy(plane))
        assert await committed_values(plane) == [b"later"]
        assert await committed_values(plane, topic="small") == [b"fits"]

    play(talk)


async def set_level(plane: DataPlane, level: int) -> None:
    """Of `transaction.version`."""
    kind = UpgradeType.UPGRADE if level == TV_2 else UpgradeType.SAFE_DOWNGRADE
    features = plane.state.features
    assert isinstance(features, ClusterFeatures)
    await features.update({TRANSACTION_VERSION: FeatureUpdate(level, kind)}, validate_only=False)


def test_the_first_transaction_of_the_second_version_has_an_epoch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it appends would else be part of the one before, as long as that one's markers are not written."""
    write = MarkerWriter.write

    async def talk(plane: DataPlane) -> None:
        def late(self: MarkerWriter, *marker: Any) -> None:
            plane.world.loop.call_later(0.5, write, self, *marker)

        monkeypatch.setattr(MarkerWriter, "write", late)
        await set_level(plane, 1)
        async with producer(plane) as mine:
            async with mine.transaction():
                await (await mine.send("t", b"first", partition=0))
                await set_level(plane, TV_2)
                plane.world.network.reset_some(1.0)  # who connects anew hears of it
            with pytest.raises(StopHereError):
                async with mine.transaction():
                    await (await mine.send("t", b"given up", partition=0))
                    raise StopHereError
            async with mine.transaction():
                await mine.send("t", b"third", partition=0)
        await plane.until(lambda: not is_busy(plane))
        assert await committed_values(plane) == [b"first", b"third"]

    play(talk)


@pytest.mark.parametrize("level", [1, TV_2])
def test_a_record_for_which_nobody_waits_is_aborted_with_its_transaction(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has to be sent again, which takes longer than the end of the transaction would."""

    def lost(self: Sender, connection: Any, batches: list[ProducerBatch]) -> None:
        monkeypatch.undo()
        for batch in batches:
            self._on_error(batch, KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost"))

    async def talk(plane: DataPlane) -> None:
        await set_level(plane, level)
        async with producer(plane) as mine:
            monkeypatch.setattr(Sender, "_send", lost)
            with pytest.raises(StopHereError):
                async with mine.transaction():
                    (await mine.send("t", b"given up", partition=0)).cancel()
                    raise StopHereError
            async with mine.transaction():
                await mine.send("t", b"next", partition=0)
        await plane.until(lambda: not is_busy(plane))
        assert await committed_values(plane) == [b"next"]

    play(talk)


@pytest.mark.parametrize("level", [1, TV_2])
@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
def test_nobody_goes_on_in_a_transaction_whose_end_was_not_answered(
    level: int, is_told: bool, is_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is told of it or not, and cannot be reached any more. What it was not told is no commit."""
    send = CoordinatorLink.send

    async def unanswered(self: CoordinatorLink, request: Any, **how: Any) -> Any:
        if not isinstance(request, EndTxnRequest):
            return await send(self, request, **how)
        if is_told:
            await send(self, request, **how)
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no answer")

    async def talk(plane: DataPlane) -> None:
        await set_level(plane, level)
        async with producer(plane, max_block_ms=1_000) as mine:
            with pytest.raises(KafkaError if is_commit else StopHereError):
                async with mine.transaction():
                    await mine.send("t", b"first", partition=0)
                    monkeypatch.setattr(CoordinatorLink, "send", unanswered)
                    if not is_commit:
                        raise StopHereError
            with pytest.raises(KafkaError):
                async with mine.transaction():
                    pass
            monkeypatch.undo()
            async with mine.transaction():
                await mine.send("t", b"next", partition=0)
        await plane.until(lambda: not is_busy(plane))
        assert await committed_values(plane) == [b"first"] * (is_told and is_commit) + [b"next"]

    play(talk)


def test_who_is_interrupted_at_the_end_of_a_transaction_may_begin_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Producer) -> None:
        await asyncio.Event().wait()

    async def talk(plane: DataPlane) -> None:
        async with producer(plane) as mine:
            with monkeypatch.context() as patch:
                patch.setattr(Producer, "flush", never)
                transaction = mine.transaction()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1), transaction:
                    await mine.send("t", b"first", partition=0)
            async with mine.transaction():
                await mine.send("t", b"next", partition=0)
        await plane.until(lambda: not is_busy(plane))
        assert await committed_values(plane) == [b"next"]

    play(talk)


def test_who_has_failed_does_not_take_the_id_back_from_its_heir(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for another epoch as the one it was, and another producer has been there in between."""
    end = TransactionManager.end

    async def talk(plane: DataPlane) -> None:
        await set_level(plane, 1)
        await plane.create_topic("small", max_message_bytes="200")
        async with producer(plane) as mine:
            heir = producer(plane)

            async def end_late(self: TransactionManager, *, is_commit: bool) -> None:
                await end(self, is_commit=is_commit)
                monkeypatch.undo()
                await heir.start()

            monkeypatch.setattr(TransactionManager, "end", end_late)
            with pytest.raises(KafkaError):
                async with mine.transaction():
                    await mine.send("small", bytes(1000), partition=0)
            async with heir.transaction():
                await heir.send("t", b"heir", partition=0)
            with pytest.raises(KafkaError):
                async with mine.transaction():
                    await mine.send("t", b"zombie", partition=0)
            await heir.close()
        await plane.until(lambda: not is_busy(plane))
        assert await committed_values(plane) == [b"heir"]

    play(talk)


async def test_without_an_id_there_are_no_transactions() -> None:
    with pytest.raises(RuntimeError, match="transactional_id"):
        Producer(ADDRESS).transaction()
    with pytest.raises(ValueError, match="acks"):
        Producer(ADDRESS, transactional_id="x", acks=1)
