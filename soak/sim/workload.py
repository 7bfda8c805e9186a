"""The clients of a simulated world: producers, concurrent readers, and a reader of all records at the end."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from soak.sim.history import History, WriterKind

from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.machines import Machines

TOPIC = "t"
DRAIN_SECONDS = 120.0
MAX_UNACKNOWLEDGED = 50
"""A writer waits while so many of its records are on their way, as a program does that looks at its futures."""
T = TypeVar("T", Producer, Consumer)


@dataclass(frozen=True, slots=True)
class Load:
    """How much of what is sent, and in which form."""

    seed: int
    partitions: int
    writers: int
    """Producers of each partition."""
    compression: str
    linger_ms: int
    batch_size: int
    value_bytes: int
    pace: float
    """Seconds from one record of a writer to the next, at most."""
    faults: frozenset[str]


class Workload(ABC):
    """Clients of one topic, and the history of what they were told: a plan being carried out."""

    def __init__(self, world: Machines, plan: Load, bootstrap: str) -> None:
        self.world = world
        self.loop = world.loop
        self.plan = plan
        self.bootstrap = bootstrap
        self.history = History()
        self.is_over = False

    @abstractmethod
    async def go(self) -> None:
        """From the first start to the last look.

        Raises:
            AssertionError: what should come does not.
        """

    def check(self) -> list[str]:
        """All violations, of a run that has come to its end."""
        return self.history.check()

    def check_unfinished(self) -> list[str]:
        """Return the violations of a run that has not finished."""
        return []

    @property
    @abstractmethod
    def lives(self) -> int:
        """How often brokers were started."""

    @property
    def acknowledged(self) -> int:
        """How much was."""
        return len(self.history.acknowledged)

    @property
    def summary(self) -> str:
        """Return the numbers of the run as text."""
        return f"{self.acknowledged} acknowledged"

    @property
    def done(self) -> list[str]:
        """Which harm, in order."""
        return []

    def trace(self) -> object:
        """Everything acknowledged and seen, in order."""
        history = self.history
        return sorted(history.acknowledged.items()), history.seen, sorted(history.final.items())

    def _kind(self, writer: str) -> WriterKind:
        """How a writer sends."""
        return WriterKind()

    async def _produce(self, partition: int, writer: int) -> None:
        """A producer of one partition; the order it sent in is the order that must be read."""
        plan, history = self.plan, self.history
        name = f"{partition}/{writer}"
        kind = history.kinds[name] = self._kind(name)
        rng = random.Random(f"{plan.seed}/writer/{name}")
        async with self._reached(
            lambda: Producer(
                self.bootstrap,
                acks=kind.acks,
                enable_idempotence=kind.is_idempotent,
                max_in_flight=5 if kind.is_idempotent else 1,
                compression=plan.compression,
                linger_ms=plan.linger_ms,
                batch_size=plan.batch_size,
                request_timeout_ms=5000,
                rng=rng,
                wall_clock_ms=self.world.now_ms,
            )
        ) as producer:
            number = 0
            recent: deque[asyncio.Future[Any]] = deque(maxlen=MAX_UNACKNOWLEDGED)
            while not self.is_over:
                value = f"{name}/{number}/".encode() + b"x" * rng.randrange(plan.value_bytes)
                number += 1
                history.sent[value] = name
                future = await producer.send(TOPIC, value, partition=partition)
                future.add_done_callback(partial(self._sent, value))
                while sum(not one.done() for one in recent) >= MAX_UNACKNOWLEDGED:
                    await asyncio.sleep(0.05)
                recent.append(future)
                await asyncio.sleep(rng.random() * plan.pace)

    def _sent(self, value: bytes, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self.history.refused[value] = str(error)
        else:
            metadata = future.result()
            self.history.acknowledged[value] = (metadata.partition, metadata.offset)

    async def _read(self) -> None:
        """A reader that follows all partitions from the start, over every fault."""
        seen: list[tuple[int, int, bytes]] = []
        self.history.seen.append(seen)
        async with self._reached(lambda: self._consumer(1)) as consumer:
            consumer.assign(self._partitions())
            while not self.is_over:
                self._take(await consumer.getmany(timeout_ms=500), seen)

    async def _drain(self) -> None:
        """Everything has healed: what a fresh reader finds from the start to the end is the log."""
        seen: list[tuple[int, int, bytes]] = []
        deadline = self.loop.time() + DRAIN_SECONDS
        async with self._reached(lambda: self._consumer(2)) as consumer:
            ends = await consumer.end_offsets(self._partitions())
            consumer.assign(self._partitions())
            # Each to its own end: where acks=1 was asked for, more may be committed meanwhile than there was at first.
            while behind := [one for one, end in ends.items() if await consumer.position(one) < end]:
                assert self.loop.time() < deadline, f"stuck: not at the ends of {behind} within {DRAIN_SECONDS} s"
                self._take(await consumer.getmany(timeout_ms=500), seen)
        self.history.final = {(partition, offset): value for partition, offset, value in seen}

    @asynccontextmanager
    async def _reached(self, make: Callable[[], T]) -> AsyncIterator[T]:
        """A started client; the broker may be down when it first tries."""
        while True:
            client = make()
            try:
                await client.start()
                break
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                await asyncio.sleep(0.1)
        try:
            yield client
        finally:
            await client.close()

    def _consumer(self, number: int) -> Consumer:
        return Consumer(
            self.bootstrap, auto_offset_reset="earliest", rng=random.Random(f"{self.plan.seed}/reader/{number}")
        )

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, index) for index in range(self.plan.partitions)]

    @staticmethod
    def _take(batches: dict[TopicPartition, list[Any]], seen: list[tuple[int, int, bytes]]) -> None:
        for topic_partition, records in batches.items():
            seen += [(topic_partition.partition, record.offset, record.value) for record in records]
