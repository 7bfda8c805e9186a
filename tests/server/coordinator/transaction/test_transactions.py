"""Transactions of one broker: committed ones are whole, others are not to be seen, offsets move with the records."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.coordinator.transaction.producers import (
    NONE,
    RawProducer,
    committed_offset,
    committed_values,
    find,
    is_busy,
)
from tests.server.data_plane import DataPlane, play

from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.transaction.transaction_metadata import TransactionState

BOTH = pytest.mark.parametrize("version", [1, 2])


@BOTH
def test_what_is_committed_can_be_read_and_what_is_aborted_cannot(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=version)
        for number in range(4):
            await producer.send(b"%d" % number)
            await producer.send(b"%d" % number, index=1)
            seen = [b"%d" % one for one in range(0, number, 2)]
            assert await committed_values(plane) == seen  # not the one that is open
            await (producer.abort() if number % 2 else producer.commit())
            await plane.until(lambda: not is_busy(plane))
        assert await committed_values(plane) == await committed_values(plane, index=1) == [b"0", b"2"]
        assert plane.partition().log.last_stable_offset == plane.partition().log.log_end_offset == 8
        assert producer.known().state is TransactionState.COMPLETE_ABORT

    play(talk)


@BOTH
def test_offsets_count_when_the_transaction_is_committed(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=version)
        await find(producer.connection, "g")
        for offset, is_commit in ((5, True), (9, False), (7, True)):
            before = await committed_offset(plane, "g")
            if version == 1:
                while (error := await producer.add_offsets("g")) != NONE:
                    assert error == ErrorCode.CONCURRENT_TRANSACTIONS
            assert await producer.commit_offset("g", offset) == NONE
            assert await committed_offset(plane, "g") == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert await committed_offset(plane, "g", stable=False) == before
            assert await producer.end(is_commit=is_commit) == NONE
            await plane.until(lambda: not is_busy(plane))
            assert await committed_offset(plane, "g") == ((offset, NONE) if is_commit else before)

    play(talk)


@BOTH
def test_a_second_producer_takes_over_and_aborts_what_is_open(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        zombie = await RawProducer.open(plane, version=version)
        await zombie.send(b"old")
        heir = await RawProducer.open(plane, version=version)
        assert heir.producer_id == zombie.producer_id
        assert heir.epoch > zombie.epoch
        assert await zombie.append(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.end(is_commit=True) == ErrorCode.PRODUCER_FENCED
        await heir.send(b"new")
        await heir.commit()
        await plane.until(lambda: not is_busy(plane))
        assert await committed_values(plane) == [b"new"]

    play(talk)


@BOTH
def test_a_transaction_whose_time_is_over_is_aborted(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=version, timeout_ms=5000)
        await producer.send(b"forgotten")
        await asyncio.sleep(16)
        log = plane.partition().log
        await plane.until(lambda: log.last_stable_offset == log.log_end_offset, 1)
        assert producer.known().state is TransactionState.COMPLETE_ABORT
        assert await producer.append(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await committed_values(plane) == []

    play(talk)


def test_time_is_over_though_the_clock_is_set_back() -> None:
    """Else readers of committed records would wait for as long as it has been set back."""

    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, timeout_ms=5000)
        await producer.send(b"forgotten")
        plane.world.broker.clock_ahead_ms = -3_600_000
        log = plane.partition().log
        await plane.until(lambda: log.last_stable_offset == log.log_end_offset, 16)
        assert producer.known().state is TransactionState.COMPLETE_ABORT

    play(talk)


def test_a_coordinator_whose_clock_is_behind_counts_from_when_it_has_loaded() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, timeout_ms=5000)
        await producer.send(b"forgotten")
        plane.world.broker.clock_ahead_ms = -3_600_000
        plane.world.broker.crash("kill")
        await plane.world.broker.start()
        await plane.until(lambda: plane.partition().log.last_stable_offset == plane.partition().log.log_end_offset, 16)

    play(talk)
