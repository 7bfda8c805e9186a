"""A copy loop: consume the input as a group, and write the output and the group's offsets in one transaction."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Protocol

from soak.sim.transactions.ledger import Copy, Fate, Ledger, Transaction, targets
from soak.sim.transactions.plan import TransactionPlan

from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.cluster import ClusterWorld
from barnabas.simulation.node import SimNode

INPUT, OUTPUT, GROUP = "in", "out", "copiers"
POLL_MS = 200
MAX_BYTES = 2000
"""The fetch size limit of a partition, so that a restarted copier does not read a whole partition in one fetch."""
MAX_BLOCK_MS = 20_000
PAUSE = 0.05
SESSION_TIMEOUT_MS, HEARTBEAT_MS = 1500, 400


class GivenUpError(Exception):
    """A decision of the copier to abort its transaction."""


class Setting(Protocol):
    """The run that a copier belongs to."""

    world: ClusterWorld
    plan: TransactionPlan
    ledger: Ledger
    bootstrap: str
    is_over: bool


class Slot:
    """A sequence of processes (lives) of one copier. With zombies and twins, several processes run concurrently."""

    def __init__(self, setting: Setting, number: int) -> None:
        self.setting = setting
        self.number = number
        self.lives: list[Life] = []

    @property
    def running(self) -> list[Life]:
        return [life for life in self.lives if not life.task.done() and not life.is_dead]

    def begin(self) -> Life:
        """Start another process, even if other processes of this copier run."""
        life = Life(self, len(self.lives))
        self.lives.append(life)
        return life

    async def keep_going(self) -> None:
        """Start a new process after each process that has ended or is frozen, until the run is over."""
        loop = self.setting.world.loop
        while not self.setting.is_over:
            if all(life.node in loop.frozen for life in self.running):
                self.begin()
            await asyncio.sleep(PAUSE)
        for life in self.lives:
            if not life.is_dead:
                await life.task


class Life:
    """A process of a copier from its start to its end."""

    def __init__(self, slot: Slot, number: int) -> None:
        self.slot = slot
        self.setting = slot.setting
        self.name = f"{slot.number}.{number}"
        self.node: SimNode = self.setting.world.machine(f"copier {self.name}")
        self.random = random.Random(f"{self.setting.plan.seed}/copier/{self.name}")
        self.is_dead = False
        self._transactions = 0
        self._records = 0
        self.task = self.setting.world.spawn(self.node, self._run())

    def kill(self) -> None:
        """Kill the process as kill -9 does."""
        self.is_dead = True
        self.node.kill()

    async def _run(self) -> None:
        try:
            async with self._producer() as producer, self._consumer() as consumer:
                if self.setting.plan.manner == "assigned":
                    consumer.assign([TopicPartition(INPUT, self.slot.number)])
                    await self._go_back(consumer)
                else:
                    consumer.subscribe([INPUT])
                while not self.setting.is_over:
                    await self._copy_some(producer, consumer)
        except KafkaError as error:
            self.setting.ledger.errors.append((self.name, error.code))
        except OSError:
            return

    async def _copy_some(self, producer: Producer, consumer: Consumer) -> None:
        plan = self.setting.plan
        batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=self.random.randint(1, plan.most_records))
        if not batches:
            return
        transaction = self._begin()
        try:
            async with producer.transaction() as open_one:
                for place, records in batches.items():
                    for record in records:
                        await self._copy(producer, transaction, (place.partition, record.offset))
                if plan.linger:
                    await asyncio.sleep(self.random.random() * plan.linger)
                offsets = {place: records[-1].offset + 1 for place, records in batches.items()}
                await open_one.send_offsets(offsets, consumer.group_metadata())
                if self.random.random() < plan.abort_chance:
                    raise GivenUpError
                transaction.fate = Fate.ASKED
        except GivenUpError:
            await self._go_back(consumer)
        else:
            transaction.fate = Fate.COMMITTED
            self.setting.ledger.copied.update(place.partition for place in batches)

    def _begin(self) -> Transaction:
        self._transactions += 1
        return self.setting.ledger.begin(f"{self.name}.{self._transactions}")

    async def _copy(self, producer: Producer, transaction: Transaction, source: tuple[int, int]) -> None:
        for target in targets(source, self.setting.plan.partitions):
            copy = Copy(transaction.name, source, self._records, target)
            self._records += 1
            transaction.copies.append(copy)
            await producer.send(OUTPUT, copy.value, partition=target)

    async def _go_back(self, consumer: Consumer) -> None:
        """Seek to the committed offsets, so that the records of an aborted transaction are copied again."""
        found = await consumer.committed(consumer.assignment)
        for place, committed in found.items():
            if place in consumer.assignment:
                consumer.seek(place, 0 if committed is None else committed.offset)

    def _producer(self) -> Producer:
        plan = self.setting.plan
        return transactional_producer(
            self.setting, f"copier-{self.slot.number}", self.random, batch_size=plan.batch_size
        )

    def _consumer(self) -> Consumer:
        plan = self.setting.plan
        make = partial(
            Consumer,
            self.setting.bootstrap,
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_partition_fetch_bytes=MAX_BYTES,
            request_timeout_ms=plan.request_timeout_ms,
            rng=random.Random(f"{plan.seed}/consumer/{self.name}"),
        )
        if plan.manner == "consumer":
            return make(group_protocol="consumer")
        return make(session_timeout_ms=SESSION_TIMEOUT_MS, heartbeat_interval_ms=HEARTBEAT_MS)


def transactional_producer(
    setting: Setting, transactional_id: str, rng: random.Random, *, batch_size: int = 16_384
) -> Producer:
    """Create a producer with the settings of copiers."""
    plan = setting.plan
    return Producer(
        setting.bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=plan.timeout_ms,
        linger_ms=0,
        batch_size=batch_size,
        compression=plan.compression,
        max_block_ms=MAX_BLOCK_MS,
        delivery_timeout_ms=MAX_BLOCK_MS,
        request_timeout_ms=plan.request_timeout_ms,
        rng=rng,
        wall_clock_ms=setting.world.now_ms,
    )
