"""A simulated broker and members of groups on machines of their own, under virtual time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barnabas.clients.admin import Admin
from barnabas.clients.consumer import Consumer
from barnabas.clients.fetched_records import ConsumerRecord
from barnabas.clients.group.listener import RebalanceListener
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.machines import BOOTSTRAP, World
from barnabas.simulation.network import NetworkFaults

GROUP = "readers"
TOPIC = "t"
PARTITIONS = 4
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "100",
}
SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 50,
    "metadata_max_age_ms": 2_000,
    "request_timeout_ms": 5_000,
    "default_api_timeout_ms": 20_000,
}

CLASSIC: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
"""The newer protocol's coordinator sets these times."""


class Diary(RebalanceListener):
    """Writes down what a member is told, and holds every call against what it was told before."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, list[TopicPartition]]] = []
        self.owned: set[TopicPartition] = set()

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._give_up("revoked", revoked)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self._give_up("lost", lost)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        assert not self.owned & set(assigned), "told twice"
        self.owned |= set(assigned)
        self.lines.append(("assigned", assigned))

    def _give_up(self, how: str, partitions: list[TopicPartition]) -> None:
        assert set(partitions) <= self.owned, "never had"
        self.owned -= set(partitions)
        self.lines.append((how, partitions))

    def told(self, *, empty: bool = False) -> list[str]:
        """What happened, in order."""
        return [how for how, partitions in self.lines if partitions or empty]


class Reader:
    """A member that reads as a program of its own machine until it is stopped or killed."""

    _names = itertools.count(1)

    def __init__(
        self, world: GroupWorld, settings: Mapping[str, Any], topics: list[str], diary: Diary | None = None
    ) -> None:
        self.world = world
        self.node = world.world.machine(f"reader{next(self._names)}")
        self.diary = diary or Diary()
        self.records: list[ConsumerRecord] = []
        self.consumer = world.consumer(**settings)
        self.is_asleep = False
        self._topics = topics
        self._stopping = False
        self.task = world.world.spawn(self.node, self._run())

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    @property
    def assigned(self) -> set[TopicPartition]:
        return self.consumer.assignment

    async def stop(self) -> None:
        """Leave the group."""
        self._stopping = True
        await self.task

    def kill(self) -> None:
        """Be gone at once, and say nothing."""
        self.node.kill()

    async def _run(self) -> None:
        try:
            await self._start()
            self.consumer.subscribe(self._topics, listener=self.diary)
            while not self._stopping:
                if self.is_asleep:
                    await asyncio.sleep(0.1)
                    continue
                for records in (await self.consumer.getmany(timeout_ms=200, max_records=10)).values():
                    assert {TopicPartition(r.topic, r.partition) for r in records} <= self.diary.owned
                    self.records += records
        finally:
            await self.consumer.close()

    async def _start(self) -> None:
        """The broker may be down, or connections break, while the first questions are asked."""
        while True:
            try:
                await self.consumer.start()
            except KafkaError as error:
                assert error.code.retriable, error
                await asyncio.sleep(0.1)
            else:
                return


class GroupWorld:
    """One running broker with topic `t`, and whoever talks to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop
        self.produced = 0
        self._readers = itertools.count()

    def consumer(self, **settings: Any) -> Consumer:
        rng = random.Random(f"{self.world.seed}/consumer/{next(self._readers)}")
        times = {} if settings.get("group_protocol") == "consumer" else CLASSIC
        return Consumer(BOOTSTRAP, rng=rng, **({"group_id": GROUP} | SETTINGS | times | settings))

    def reader(self, *, topics: list[str] | None = None, **settings: Any) -> Reader:
        return Reader(self, settings, topics or [TOPIC])

    def admin(self) -> Admin:
        return Admin(BOOTSTRAP, rng=random.Random(5))

    async def produce(self, count: int, topic: str = TOPIC, partitions: int = PARTITIONS) -> set[bytes]:
        """New records, spread over the partitions; returns their values."""
        values = {b"%d" % number for number in range(self.produced, self.produced + count)}
        async with Producer(BOOTSTRAP, rng=random.Random(self.produced)) as producer:
            sent = [
                await producer.send(topic, b"%d" % number, partition=number % partitions)
                for number in range(self.produced, self.produced + count)
            ]
            await asyncio.gather(*sent)
        self.produced += count
        return values

    async def create_topic(self, name: str, partitions: int = PARTITIONS) -> None:
        await self.world.create_topic(name, partitions)

    async def delete_topic(self, name: str) -> None:
        await self.world.delete_topic(name)

    async def restart(self) -> None:
        """kill -9, and a start on what the disk kept."""
        self.world.broker.crash("kill")
        await self.world.broker.start()

    async def committed(self, group_id: str = GROUP) -> dict[TopicPartition, int]:
        async with self.admin() as admin:
            offsets = (await admin.list_group_offsets([group_id]))[group_id]
            assert not isinstance(offsets, KafkaError), offsets
            return {tp: at.offset for tp, at in offsets.items()}

    async def until(self, condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
        """Let virtual time pass until the condition holds; `what` is the condition in words, for the message."""
        deadline = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < deadline, f"not within {seconds:g} s: {what}"
            await asyncio.sleep(0.05)

    async def until_shared(self, *readers: Reader, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
        """Every partition has one owner, and everybody has a share."""
        everything = {TopicPartition(topic, index) for index in range(partitions)}

        def is_shared() -> bool:
            owned = [tp for reader in readers for tp in reader.assigned if tp.topic == topic]
            least = partitions // len(readers)
            return (
                len(owned) == partitions and set(owned) == everything and all(len(r.assigned) >= least for r in readers)
            )

        await self.until(is_shared, f"{len(readers)} members share")


def play(
    story: Callable[[GroupWorld], Awaitable[None]],
    *,
    settings: Mapping[str, str] | None = None,
    faults: NetworkFaults | None = None,
    seed: int = 7,
) -> None:
    """Start a broker, make the topic `t`, tell the story."""

    async def main(loop: SimLoop) -> None:
        world = World(loop, seed, settings={**QUICK, **(settings or {})}, network_faults=faults or NetworkFaults())
        await world.broker.start()
        groups = GroupWorld(world)
        await groups.create_topic(TOPIC)
        await story(groups)

    run(main, seed)
