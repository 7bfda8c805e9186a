"""kill -9 under transactional load: what was committed is there whole, nothing else is, and offsets moved with it."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.server_process import free_port, wait_until_all_registered

from barnabas.clients import Admin, Consumer, NewTopic, Producer, TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError

TOPIC, GROUPS = "orders", ("a", "b", "c")
PLACES = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
CLUSTER = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "zookeeper.session.timeout.ms": "2000",
}
ROUNDS = int(os.environ.get("BARNABAS_KILL_ROUNDS", "4"))
LEAST = 10
"""So many transactions are committed, however slow the disk is."""


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


async def kill_rounds(brokers: list[BarnabasServer], rounds: int, seed: int) -> int:
    """Kill one broker a round, in the end all of them, while copiers copy; how many transactions they committed."""
    rng = random.Random(seed)
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=len(brokers))])
    copiers = [Copier(bootstrap, name) for name in GROUPS]
    running = [asyncio.ensure_future(copier.run()) for copier in copiers]
    for number in range(rounds):
        await asyncio.sleep(rng.uniform(0.3, 1.0))
        victims = brokers if number == rounds - 1 else [rng.choice(brokers)]
        for victim in victims:
            await asyncio.to_thread(victim.kill)
        for victim in victims:
            await asyncio.to_thread(victim.start)
        before = sum(len(copier.committed) for copier in copiers)
        async with asyncio.timeout(60):
            while sum(len(copier.committed) for copier in copiers) == before:
                await asyncio.sleep(0.02)
    async with asyncio.timeout(60):
        while sum(len(copier.committed) for copier in copiers) <= LEAST:
            await asyncio.sleep(0.02)
    for copier in copiers:
        copier.is_over = True
    await asyncio.wait_for(asyncio.gather(*running), 60)
    for copier in copiers:  # what they may have left open is over
        async with Producer(bootstrap, transactional_id=copier.name):
            pass
    await check(bootstrap, copiers)
    return sum(len(copier.committed) for copier in copiers)


@pytest.mark.timeout(170)
async def test_committed_transactions_survive_kill_9(tmp_path: Path) -> None:
    broker = BarnabasServer(tmp_path, properties={"log.segment.bytes": "300000"})
    await asyncio.to_thread(broker.start)
    try:
        assert await kill_rounds([broker], ROUNDS, seed=7) > LEAST
        assert await asyncio.to_thread(broker.stop) == 0
    finally:
        await asyncio.to_thread(broker.kill)


@pytest.mark.verify
@pytest.mark.timeout(400)
async def test_committed_transactions_survive_kill_9_of_any_of_three(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    brokers = []
    for number in (1, 2, 3):
        where = "coordinator.listeners" if number == 1 else "zookeeper.connect"
        properties = {**CLUSTER, where: address, "broker.id": str(number)}
        brokers.append(BarnabasServer(tmp_path / f"broker-{number}", properties=properties))
    try:
        for broker in brokers:
            await asyncio.to_thread(broker.start)
        await asyncio.to_thread(wait_until_all_registered, brokers)
        assert await kill_rounds(brokers, 2 * ROUNDS, seed=8) > LEAST
    finally:
        for broker in brokers:
            await asyncio.to_thread(broker.kill)
