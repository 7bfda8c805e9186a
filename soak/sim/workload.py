"""The clients of a simulated world: producers, a consumer during the run, and a consumer of all records at the end."""

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
"""A writer waits while this number of its records is unacknowledged, like an application that awaits its futures."""
T = TypeVar("T", Producer, Consumer)


@dataclass(frozen=True, slots=True)
class Load:
    """The number, size and format of the records of a run."""

    seed: int
    partitions: int
    writers: int
    """The number of producers of each partition."""
    compression: str
    linger_ms: int
    batch_size: int
    value_bytes: int
    pace: float
    """The maximum of the seconds between two records of a writer."""
    faults: frozenset[str]


class Workload(ABC):
    """Clients of one topic that carry out a plan, and the history of their acknowledgements and records."""

    def __init__(self, world: Machines, plan: Load, bootstrap: str) -> None:
        self.world = world
        self.loop = world.loop
        self.plan = plan
        self.bootstrap = bootstrap
        self.history = History()
        self.is_over = False

    @abstractmethod
    async def go(self) -> None:
        """Play the whole run, including the final read.

        Raises:
            AssertionError: an expected event did not occur in time.
        """

    def check(self) -> list[str]:
        """Return all violations of a finished run."""
        return self.history.check()

    def check_unfinished(self) -> list[str]:
        """Return the violations of a run that has not finished."""
        return []

    @property
    @abstractmethod
    def lives(self) -> int:
        """Return how often brokers were started."""

    @property
    def acknowledged(self) -> int:
        """Return the number of acknowledged records."""
        return len(self.history.acknowledged)

    @property
    def summary(self) -> str:
        """Return the numbers of the run as text."""
        return f"{self.acknowledged} acknowledged"

    @property
    def done(self) -> list[str]:
        """Return the injected faults, in order."""
        return []

    def trace(self) -> object:
        """Return all acknowledgements and all records read, in order."""
        history = self.history
        return sorted(history.acknowledged.items()), history.seen, sorted(history.final.items())

    def _kind(self, writer: str) -> WriterKind:
        """Return the guarantees of a writer."""
        return WriterKind()

    async def _produce(self, partition: int, writer: int) -> None:
        """Produce to one partition until the run is over. Consumers must read the records in the order of the sends."""
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
        """Consume all partitions from the start until the run is over."""
        seen: list[tuple[int, int, bytes]] = []
        self.history.seen.append(seen)
        async with self._reached(lambda: self._consumer(1)) as consumer:
            consumer.assign(self._partitions())
            while not self.is_over:
                self._take(await consumer.getmany(timeout_ms=500), seen)

    async def _drain(self) -> None:
        """Read the whole log with a new consumer after all faults have ended."""
        seen: list[tuple[int, int, bytes]] = []
        deadline = self.loop.time() + DRAIN_SECONDS
        async with self._reached(lambda: self._consumer(2)) as consumer:
            ends = await consumer.end_offsets(self._partitions())
            consumer.assign(self._partitions())
            # Read each partition to its initial end: with acks=1, further records may be committed during the read.
            while behind := [one for one, end in ends.items() if await consumer.position(one) < end]:
                assert self.loop.time() < deadline, f"stuck: {behind} not read to their ends within {DRAIN_SECONDS} s"
                self._take(await consumer.getmany(timeout_ms=500), seen)
        self.history.final = {(partition, offset): value for partition, offset, value in seen}

    @asynccontextmanager
    async def _reached(self, make: Callable[[], T]) -> AsyncIterator[T]:
        """Start a client, with retries while the broker is down, and close the client at the end."""
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
