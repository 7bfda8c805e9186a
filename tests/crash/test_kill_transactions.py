"""kill -9 under transactional load: what was committed is there whole, nothing else is, and offsets moved with it."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer

from barnabas.clients import Admin, Consumer, NewTopic, Producer, TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError

TOPIC, GROUPS = "orders", ("a", "b", "c")
PLACES = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
ROUNDS = int(os.environ.get("BARNABAS_KILL_ROUNDS", "4"))


class Copier:
    """Writes its numbers to both partitions, each with an offset, over the broker's deaths."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.committed: list[int] = []
        self.unknown: set[int] = set()
        self.number = 0
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            try:
                async with Producer(self.bootstrap, transactional_id=self.name, linger_ms=0) as producer:
                    while not self.is_over:
                        await self._transaction(producer)
            except (KafkaError, OSError):
                await asyncio.sleep(0.05)

    async def _transaction(self, producer: Producer) -> None:
        self.number += 1
        number = self.number
        async with producer.transaction() as transaction:
            for place in PLACES:
                for part in range(3):
                    await producer.send(TOPIC, f"{self.name}{number}.{part}".encode(), partition=place.partition)
            await transaction.send_offsets({PLACES[0]: number}, f"group-{self.name}")
            if number % 5 == 0:
                self.number += 1  # the offset of the next one tells it from this
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "given up")
            self.unknown.add(number)
        self.unknown.discard(number)
        self.committed.append(number)


async def read(bootstrap: str, place: TopicPartition) -> list[str]:
    """What a reader of committed records sees."""
    values: list[str] = []
    async with Consumer(bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        (end,) = (await consumer.end_offsets([place])).values()
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                values += [bytes(record.value or b"").decode() for record in records]
    return values


async def check(bootstrap: str, copiers: list[Copier]) -> None:
    first, second = [await read(bootstrap, place) for place in PLACES]
    async with Admin(bootstrap) as admin:
        for copier in copiers:
            mine = [value for value in first if value.startswith(copier.name)]
            assert [value for value in second if value.startswith(copier.name)] == mine
            numbers = sorted({int(value[1:].split(".")[0]) for value in mine})
            assert mine == [f"{copier.name}{number}.{part}" for number in numbers for part in range(3)]
            assert set(copier.committed) <= set(numbers) <= set(copier.committed) | copier.unknown
            answer = (await admin.list_group_offsets([f"group-{copier.name}"]))[f"group-{copier.name}"]
            assert not isinstance(answer, KafkaError)
            (committed,) = answer.values()
            assert committed.offset == numbers[-1]
        assert await admin.open_transactions(PLACES) == []


async def kill_rounds(folder: Path, rounds: int, seed: int) -> int:
    rng = random.Random(seed)
    broker = BarnabasServer(folder, properties={"log.segment.bytes": "300000"})
    await asyncio.to_thread(broker.start)
    try:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(TOPIC, num_partitions=2)])
        copiers = [Copier(broker.bootstrap, name) for name in GROUPS]
        running = [asyncio.ensure_future(copier.run()) for copier in copiers]
        for _ in range(rounds):
            await asyncio.sleep(rng.uniform(0.3, 1.0))
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        await asyncio.sleep(0.5)
        for copier in copiers:
            copier.is_over = True
        await asyncio.wait_for(asyncio.gather(*running), 60)
        for copier in copiers:  # what they may have left open is over
            async with Producer(broker.bootstrap, transactional_id=copier.name):
                pass
        await check(broker.bootstrap, copiers)
        assert await asyncio.to_thread(broker.stop) == 0
    finally:
        await asyncio.to_thread(broker.kill)
    return sum(len(copier.committed) for copier in copiers)


@pytest.mark.timeout(170)
async def test_committed_transactions_survive_kill_9(tmp_path: Path) -> None:
    assert await kill_rounds(tmp_path, ROUNDS, seed=7) > 10
