"""Seeded runs with a compacted topic: the cleaner runs under the faults of `soak.sim`, and must not lose records."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from soak.sim.outcome import carry_out
from soak.sim.scenario import FAULT_POINTS, Plan, Run
from soak.sim.workload import DRAIN_SECONDS, MAX_UNACKNOWLEDGED, TOPIC

from barnabas.clients.producer import Producer
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.loop import SimLoop

KEYS_OF_A_WRITER = 4
TOMBSTONES = 0.1
CLEANER_FAULT = "cleaner-died"
Row = tuple[int, int, str, bytes | None]
"""Partition, offset, key, value."""


@dataclass
class KeyedHistory:
    """The records and acknowledgements of writers, and the records of readers. A key has one writer; values differ."""

    sent: dict[tuple[str, bytes | None], None] = field(default_factory=dict)
    acknowledged: dict[tuple[int, int], tuple[str, bytes | None]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    seen: list[Row] = field(default_factory=list)
    """The records of the reader that consumes during the whole run, in order."""
    final: list[Row] = field(default_factory=list)
    """The records of a new reader at the end."""
    touched: dict[int, int] = field(default_factory=dict)
    """The highest offset that the cleaner has read in each partition."""

    def check(self) -> list[str]:
        """Return all violations."""
        return [
            *self.refused,
            *self._disordered("follower", self.seen),
            *self._disordered("fresh reader", self.final),
            *self._wrong_states(),
            *self._missing_where_nobody_cleaned(),
        ]

    def _disordered(self, who: str, rows: list[Row]) -> Iterable[str]:
        last: dict[int, int] = {}
        for partition, offset, key, value in rows:
            if offset <= last.get(partition, -1):
                yield f"order: the {who} read {offset} of {partition} after {last[partition]}"
            last[partition] = offset
            if (key, value) not in self.sent:
                yield f"phantom: the {who} found {key}={value!r} at {(partition, offset)}"
            if self.acknowledged.get((partition, offset), (key, value)) != (key, value):
                yield f"changed: {(partition, offset)} was acknowledged as another record than {key}={value!r}"

    def _wrong_states(self) -> Iterable[str]:
        """Yield a violation for each key whose final record is older than its last acknowledged record."""
        promised: dict[str, tuple[int, bytes | None]] = {}
        for (_, offset), (key, value) in self.acknowledged.items():
            promised[key] = max(promised.get(key, (-1, None)), (offset, value), key=lambda item: item[0])
        found = {key: (offset, value) for _, offset, key, value in self.final}
        for key, (offset, value) in promised.items():
            there, found_value = found.get(key, (offset, None))
            if there < offset and found_value is not None:
                yield f"stale: {key} is {found_value!r} at {there}; {value!r} was acknowledged at {offset}"
            elif there == offset and found_value != value:
                yield f"lost: {key}={value!r}, acknowledged at {offset}"

    def _missing_where_nobody_cleaned(self) -> Iterable[str]:
        present = {(partition, offset) for partition, offset, _, _ in self.final}
        for (partition, offset), (key, value) in self.acknowledged.items():
            if offset >= self.touched.get(partition, 0) and (partition, offset) not in present:
                yield f"missing: {key}={value!r} at {(partition, offset)}, which was never cleaned"


class CompactedRun(Run):
    """A run of a plan with a compacted topic and a cleaner that runs every few milliseconds."""

    def __init__(self, loop: SimLoop, plan: Plan) -> None:
        super().__init__(loop, plan)
        self.keyed = KeyedHistory()
        self.world.fault_points = plan.faults & (FAULT_POINTS | {CLEANER_FAULT})

    def check(self) -> list[str]:
        return self.keyed.check()

    @property
    def topic_settings(self) -> dict[str, str]:
        rng = random.Random(f"{self.plan.seed}/topic")
        return {
            "cleanup.policy": "compact",
            "segment.bytes": str(rng.choice([2000, 4096, 20_000])),
            "min.cleanable.dirty.ratio": str(rng.choice([0.0, 0.1, 0.5])),
            "delete.retention.ms": str(rng.choice([0, 1000, 86_400_000])),
            "min.compaction.lag.ms": str(rng.choice([0, 0, 500])),
            "file.delete.delay.ms": str(rng.choice([0, 1000])),
        }

    async def _produce(self, partition: int, writer: int) -> None:
        plan, keyed = self.plan, self.keyed
        name = f"{partition}/{writer}"
        rng = random.Random(f"{plan.seed}/writer/{name}")
        async with self._reached(
            lambda: Producer(
                self.bootstrap,
                compression=plan.compression,
                linger_ms=plan.linger_ms,
                batch_size=min(plan.batch_size, 2000),
                request_timeout_ms=5000,
                rng=rng,
                wall_clock_ms=self.world.now_ms,
            )
        ) as producer:
            number = 0
            recent: deque[asyncio.Future[Any]] = deque(maxlen=MAX_UNACKNOWLEDGED)
            while not self.is_over:
                key = f"{name}/{rng.randrange(KEYS_OF_A_WRITER)}"
                value = None if rng.random() < TOMBSTONES else f"{name}/{number}/".encode() + b"x" * rng.randrange(100)
                number += 1
                keyed.sent[key, value] = None
                future = await producer.send(TOPIC, value, key=key.encode(), partition=partition)
                future.add_done_callback(partial(self._acknowledged, (key, value)))
                while sum(not one.done() for one in recent) >= MAX_UNACKNOWLEDGED:
                    await asyncio.sleep(0.05)
                recent.append(future)
                await asyncio.sleep(rng.random() * 0.02)

    def _acknowledged(self, record: tuple[str, bytes | None], future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self.keyed.refused.append(f"refused: {record}: {error}")
        else:
            metadata = future.result()
            self.keyed.acknowledged[metadata.partition, metadata.offset] = record

    async def _read(self) -> None:
        async with self._reached(lambda: self._consumer(1)) as consumer:
            consumer.assign(self._partitions())
            while not self.is_over:
                self._note(await consumer.getmany(timeout_ms=500), self.keyed.seen)

    async def _drain(self) -> None:
        deadline = self.loop.time() + DRAIN_SECONDS
        async with self._reached(lambda: self._consumer(2)) as consumer:
            ends = await consumer.end_offsets(self._partitions())
            consumer.assign(self._partitions())
            while any([await consumer.position(one) < end for one, end in ends.items()]):
                assert self.loop.time() < deadline, f"stuck before {ends} within {DRAIN_SECONDS} s"
                self._note(await consumer.getmany(timeout_ms=500), self.keyed.final)
        server = self.world.broker.server
        assert server is not None
        touched = self.world.broker.touched
        self.keyed.touched = {int(path.rpartition("-")[2]): offset for path, offset in touched.items()}
        uncleanable = server.state.cleaner.manager.uncleanable
        assert not uncleanable, uncleanable

    @staticmethod
    def _note(batches: dict[TopicPartition, list[Any]], rows: list[Row]) -> None:
        for topic_partition, records in batches.items():
            rows += [(topic_partition.partition, r.offset, r.key.decode(), r.value) for r in records]


def play_compacted(seed: int) -> tuple[list[str], KeyedHistory]:
    """Carry out the plan of a seed with a compacted topic; return the violations and the history."""
    plan = Plan.draw(seed, durability="disk")
    rng = random.Random(f"{seed}/cleaner")
    faults = plan.faults | ({CLEANER_FAULT} if rng.random() < 0.5 else set())
    settings = plan.settings | {"log.cleaner.backoff.ms": str(rng.choice([50, 500]))}
    plan = replace(plan, faults=faults, settings=settings)
    carried_out, violations = carry_out(CompactedRun, plan)
    return violations, carried_out.keyed
