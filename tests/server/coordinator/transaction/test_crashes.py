"""A broker that dies in the middle of transactions, alone or with its machine: each is there whole, or not at all."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.server.coordinator.transaction.producers import (
    NONE,
    RawProducer,
    committed_offset,
    committed_values,
    find,
)
from tests.server.data_plane import DataPlane, play

from barnabas.protocol.errors import KafkaError
from barnabas.server.coordinator.transaction.transaction_metadata import TransactionState
from barnabas.simulation.machines import WorkDelays

TRANSACTIONS = 25
GROUP = "g"


class Copier:
    """Writes its number to both partitions and as an offset, in one transaction after the other, whatever happens."""

    def __init__(self, plane: DataPlane, name: str, version: int, rng: random.Random) -> None:
        self.plane = plane
        self.name = name
        self.version = version
        self.rng = rng
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.unknown: set[bytes] = set()

    async def run(self) -> None:
        producer = None
        for number in range(TRANSACTIONS):
            value = f"{self.name}{number}".encode()
            while True:
                try:
                    if producer is None:
                        producer = await RawProducer.open(self.plane, self.name, version=self.version)
                        await find(producer.connection, GROUP + self.name)
                    await self._transaction(producer, value, number)
                    break
                except (KafkaError, OSError, AssertionError, asyncio.IncompleteReadError):
                    producer = None
                    await asyncio.sleep(0.05)
                    if value in self.unknown:
                        break

    async def _transaction(self, producer: RawProducer, value: bytes, number: int) -> None:
        await producer.send(value)
        await producer.send(value, index=1)
        if self.version == 1:
            assert await producer.add_offsets(GROUP + self.name) == NONE
        assert await producer.commit_offset(GROUP + self.name, number + 1) == NONE
        is_commit = self.rng.random() < 0.7
        if is_commit:
            self.unknown.add(value)  # until it is answered
        assert await producer.end(is_commit=is_commit) == NONE
        self.unknown.discard(value)
        (self.committed if is_commit else self.aborted).add(value)

    def check(self, first: list[bytes | None], second: list[bytes | None], offset: int) -> None:
        mine = [value for value in first if value is not None and value.startswith(self.name.encode())]
        assert [value for value in second if value in set(mine)] == mine
        assert len(mine) == len(set(mine))
        assert self.committed <= set(mine) <= self.committed | self.unknown
        numbers = [int(value.decode().removeprefix(self.name)) for value in mine]
        assert numbers == sorted(numbers)
        assert offset == (numbers[-1] + 1 if numbers else -1)


@pytest.mark.parametrize("how", ["kill", "A", "B"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.verify) for seed in range(2, 12))])
def test_transactions_are_whole_after_a_crash(how: str, seed: int) -> None:
    async def talk(plane: DataPlane) -> None:
        rng = random.Random(seed)
        copiers = [Copier(plane, name, version, rng) for name, version in (("a", 1), ("b", 2), ("c", 2))]
        work = [asyncio.ensure_future(copier.run()) for copier in copiers]
        for _ in range(6):
            await asyncio.sleep(rng.uniform(0.02, 0.4))
            plane.world.broker.crash(how)  # type: ignore[arg-type]
            await plane.world.broker.start()
        await asyncio.gather(*work)
        for copier in copiers:  # what is left open is nobody's any more
            (await RawProducer.open(plane, copier.name)).connection.close()
        for index in (0, 1):
            log = plane.partition(index=index).log
            await plane.until(lambda log=log: log.last_stable_offset == log.log_end_offset, 60)  # type: ignore[misc]
        first, second = await committed_values(plane), await committed_values(plane, index=1)
        for copier in copiers:
            offset, error = await committed_offset(plane, GROUP + copier.name)
            assert error == NONE
            copier.check(first, second, offset)
        assert sum(len(copier.committed) for copier in copiers) > 20

    play(talk, seed=seed, delays=WorkDelays(usual=0.002))


@pytest.mark.parametrize("how", ["kill", "A"])
def test_what_was_decided_is_carried_out_after_a_restart(how: str) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane)
        await find(producer.connection, GROUP)
        await producer.send(b"v")
        assert await producer.commit_offset(GROUP, 3) == NONE
        transaction = plane.state.transaction_coordinator.state_manager.find_transaction("x")
        assert transaction is not None
        ending = asyncio.ensure_future(producer.end(is_commit=True))
        await plane.until(lambda: transaction.metadata.state is TransactionState.PREPARE_COMMIT)
        plane.world.broker.crash(how)  # type: ignore[arg-type]
        await asyncio.gather(ending, return_exceptions=True)
        await plane.world.broker.start()
        await plane.until(lambda: not plane.state.transaction_coordinator.state_manager.is_loading)
        await plane.until(lambda: not plane.state.group_coordinator.group_manager.is_loading)
        await plane.until(lambda: plane.partition().log.last_stable_offset == 2)
        assert await committed_values(plane) == [b"v"]
        while (found := await committed_offset(plane, GROUP)) != (3, NONE):
            assert found == (-1, 88)
            await asyncio.sleep(0.01)

    play(talk)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_transaction_outlives_its_broker(how: str) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane)
        await find(producer.connection, GROUP)
        await producer.send(b"before")
        assert await producer.commit_offset(GROUP, 3) == NONE
        if how == "stop":
            await plane.world.broker.stop()
        else:
            plane.world.broker.crash("kill")
        await plane.world.broker.start()
        await plane.until(lambda: not plane.state.transaction_coordinator.state_manager.is_loading)
        await plane.until(lambda: not plane.state.group_coordinator.group_manager.is_loading)
        assert await committed_offset(plane, GROUP) == (-1, 88)
        producer.connection = await plane.connect()
        await producer.send(b"after")
        await producer.commit()
        await plane.until(lambda: plane.partition().log.last_stable_offset == 3)
        assert await committed_values(plane) == [b"before", b"after"]
        assert await committed_offset(plane, GROUP) == (3, NONE)

    play(talk)
