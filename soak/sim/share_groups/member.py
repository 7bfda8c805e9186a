"""A member of a share group that reads records and accepts, releases, rejects, renews or ignores them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Literal, Protocol

from soak.sim.share_groups.plan import SharePlan
from soak.sim.share_groups.watch import ShareWatch
from soak.sim.workload import TOPIC

from barnabas.clients.share.acknowledgements import Acknowledgements
from barnabas.clients.share.share_in_flight_batch import ShareRecord
from barnabas.clients.share_consumer import ShareConsumer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.simulation.cluster import ClusterWorld
from barnabas.simulation.node import SimNode

POLL_MS = 300
PAUSE = 0.05
FAILURE_CHANCE = 0.02
"""Probability that the processing of the records of one read raises an exception."""
NEVER_RAISED = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors that the faults of a run cannot cause."""


class ProcessingFailedError(Exception):
    """A failure of the application, after which its consumer is closed."""


class Setting(Protocol):
    """The run that a member belongs to."""

    world: ClusterWorld
    plan: SharePlan
    watch: ShareWatch
    bootstrap: str
    is_over: bool
    is_finished: bool
    errors: list[str]


class Slot:
    """A sequence of processes (lives) of one member. A paused process may overlap with its successor."""

    def __init__(self, setting: Setting, group_id: str, number: int) -> None:
        self.setting = setting
        self.group_id = group_id
        self.number = number
        self.lives: list[Life] = []

    @property
    def running(self) -> list[Life]:
        return [life for life in self.lives if not life.task.done() and not life.is_dead]

    async def keep_going(self) -> None:
        """Start a new process after each process that has ended or is paused, until the run is finished."""
        loop = self.setting.world.loop
        while not self.setting.is_finished:
            if all(life.node in loop.frozen for life in self.running):
                self.lives.append(Life(self, len(self.lives)))
            await asyncio.sleep(PAUSE)
        for life in self.lives:
            if not life.is_dead:
                await life.task


class Life:
    """The process of a member, from its start to its end."""

    def __init__(self, slot: Slot, number: int) -> None:
        self.setting = slot.setting
        self.group_id = slot.group_id
        self.name = f"{slot.group_id}.{slot.number}.{number}"
        self.node: SimNode = self.setting.world.machine(f"consumer {self.name}")
        self.random = random.Random(f"{self.setting.plan.seed}/consumer/{self.name}")
        self.is_explicit = self.random.random() < 0.7
        self.is_dead = False
        self._waiting: list[Acknowledgements] = []
        self._renewed: list[ShareRecord] = []
        self._member_id = ""
        self.task = self.setting.world.spawn(self.node, self._run())

    def kill(self) -> None:
        """Kill the process without closing the consumer."""
        self.is_dead = True
        self.node.kill()

    async def _run(self) -> None:
        try:
            async with self._consumer() as consumer:
                self._member_id = consumer._membership.member_id
                while not self.setting.is_finished:
                    await self._read(consumer)
        except ProcessingFailedError:
            return
        except KafkaError as error:
            self._note(error)

    def _note(self, error: KafkaError) -> None:
        if error.code in NEVER_RAISED:
            self.setting.errors.append(f"error: {self.name}: {error.code.name}: {error.message}")

    async def _read(self, consumer: ShareConsumer) -> None:
        rng, plan, watch = self.random, self.setting.plan, self.setting.watch
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=rng.choice([None, 1, 5]))
        records = [record for batch in found.values() for record in batch]
        for one in records:
            watch.delivered(self.group_id, one.partition, self._member_id, one.offset, one.delivery_count)
        # After the faults, all records must be finished within a limited time.
        if records and plan.processing and rng.random() < 0.3 and not self.setting.is_over:
            await asyncio.sleep(rng.random() * plan.processing)
        if rng.random() < FAILURE_CHANCE and records:
            raise ProcessingFailedError
        if self.is_explicit:
            self._acknowledge(records)
            if rng.random() < 0.3:
                await consumer.commit(timeout_ms=2000)
        self._take_results()

    def _acknowledge(self, records: Iterable[ShareRecord]) -> None:
        rng, plan = self.random, self.setting.plan
        renewed, self._renewed = self._renewed, []
        for record in [*renewed, *records]:
            chance = rng.random()
            if record.is_expired and rng.random() < 0.5:
                continue  # an application may check the lock, or send an acknowledgement that the leader rejects
            if (chance := chance - plan.release_chance) < 0:
                self._wait_for(record.release())
            elif (chance := chance - plan.reject_chance) < 0:
                self._wait_for(record.reject())
            elif (chance := chance - plan.renew_chance) < 0:
                self._wait_for(record.renew())
                self._renewed.append(record)
            elif chance - plan.forget_chance >= 0:
                self._wait_for(record.accept())

    def _wait_for(self, acknowledgements: Acknowledgements) -> None:
        if not any(one is acknowledgements for one in self._waiting[-4:]):
            self._waiting.append(acknowledgements)

    def _take_results(self) -> None:
        """Compare the received results of acknowledgements with the results of the leaders."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.is_complete:
                self._waiting.append(one)
            elif one.error is None:
                for offset, kind in one.types.items():
                    partition = one.partition.partition
                    self.setting.watch.answered(self.group_id, partition, self._member_id, offset, kind)
            else:
                self._note(one.error)

    def _consumer(self) -> ShareConsumer:
        plan, rng = self.setting.plan, self.random
        mode: Literal["explicit", "implicit"] = "explicit" if self.is_explicit else "implicit"
        acquire: Literal["batch_optimized", "record_limit"] = rng.choice(("batch_optimized", "record_limit"))
        return ShareConsumer(
            self.setting.bootstrap,
            self.group_id,
            [TOPIC],
            share_acknowledgement_mode=mode,
            share_acquire_mode=acquire,
            fetch_max_wait_ms=rng.choice([50, 500]),
            fetch_max_bytes=rng.choice([500, 1 << 20]),
            max_poll_records=rng.choice([1, 5, 50, 500]),
            request_timeout_ms=plan.request_timeout_ms,
            rng=random.Random(f"{plan.seed}/client/{self.name}"),
        )
