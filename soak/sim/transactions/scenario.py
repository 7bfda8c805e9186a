"""One seeded run: copy loops under faults, then a time without faults, then a check of every record."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from soak.sim.cluster.scenario import LIVE_SECONDS, LOOK_SECONDS, READY_SECONDS, ClusterRun
from soak.sim.outcome import Outcome, outcome_of
from soak.sim.transactions.copier import GROUP, INPUT, OUTPUT, Slot
from soak.sim.transactions.deserter import Deserters
from soak.sim.transactions.late_requests import LateRequests
from soak.sim.transactions.ledger import Ledger
from soak.sim.transactions.nemesis import TransactionNemesis, set_version
from soak.sim.transactions.plan import TransactionPlan
from soak.sim.transactions.stability import Stability
from soak.sim.transactions.truth import written

from barnabas.clients.consumer import Consumer, IsolationLevel
from barnabas.clients.producer import Producer
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.admin_manager import TopicCreation
from barnabas.simulation.loop import SimLoop

STABLE_SECONDS = 10.0
"""All records are stable within the transaction timeout plus this time after the last fault."""
INPUT_VALUE = b"x"
LAST_RECORDS = 30
"""The number of records that are added to each partition of the input after the last fault."""
SETTLE_SECONDS = 60.0
FED_BYTES = 300
"""The batch size of the input. A restarted copier reads the whole batch that contains its offset."""
MAX_COPIES_BYTES = 20_000


class TransactionRun(ClusterRun):
    """The run of a plan: copiers, brokers and their faults."""

    plan: TransactionPlan
    nemesis: TransactionNemesis  # type: ignore[assignment]  # has its own faults

    def __init__(self, loop: SimLoop, plan: TransactionPlan) -> None:
        super().__init__(loop, plan)
        self.ledger = Ledger(plan.partitions)
        self.slots = [Slot(self, number) for number in range(plan.copiers)]
        self.nemesis = TransactionNemesis(self.world, plan, self.slots, Deserters(self))
        self.stability = Stability(self.world, frozenset({INPUT, OUTPUT}))
        if plan.brokers == 1:
            self.invariants.least_in_sync = 1

    def check(self) -> list[str]:
        errors = self.ledger.check_errors(only_brokers_die=self.plan.only_brokers_die)
        return [*self.invariants.violations, *self.stability.violations, *self.ledger.check(), *errors]

    def check_unfinished(self) -> list[str]:
        return [*self.invariants.violations, *self.stability.violations, *self.ledger.check_reads()]

    @property
    def acknowledged(self) -> int:
        """Return the number of transactions whose commit was acknowledged."""
        return self.ledger.acknowledged

    @property
    def summary(self) -> str:
        plan = self.plan
        return (
            f"{plan.brokers} brokers, {plan.copiers} copiers ({plan.manner}), "
            f"{self.acknowledged} of {len(self.ledger.transactions)} transactions acknowledged"
        )

    def trace(self) -> object:
        ledger = self.ledger
        return list(ledger.transactions.values()), ledger.committed_reads, ledger.final, ledger.offsets

    async def go(self) -> None:
        world, plan = self.world, self.plan
        await asyncio.gather(*map(self.nemesis.bring_up, world.brokers.values()))
        await self._create_topics()
        await set_version(world, plan.version)
        await world.spawn(world.machine("feeder"), self._feed(plan.input_records))
        ways = plan.faults & {"requests lost", "answers lost", "requests late"}
        if ways:
            world.network.meddle = LateRequests(random.Random(f"{plan.seed}/late"), ways, plan.is_v2).meddle
        clients = [
            *(self.loop.create_task(slot.keep_going()) for slot in self.slots),
            world.spawn(world.machine("reader of committed"), self._follow("read_committed")),
            world.spawn(world.machine("reader of all"), self._follow("read_uncommitted")),
        ]
        await self.nemesis.rage()
        self.nemesis.calm_down()
        world.network.meddle = None
        calm_since, ends = self.loop.time(), self.stability.ends()
        await self._within(LIVE_SECONDS, "not every partition is copied further", self._until_all_is_copied_on())
        self.is_over = True
        await self._within(LIVE_SECONDS, "the clients do not finish", asyncio.gather(*clients))
        seconds = plan.timeout_ms / 1000 + STABLE_SECONDS
        await self._until(calm_since + seconds, lambda: self.stability.behind(ends))
        await self._until(self.loop.time() + seconds, self.stability.hanging)
        await self._look_at_all()
        await self._become_whole()
        self.invariants.look()
        self.stability.look()

    async def _until(self, deadline: float, found: Callable[[], list[str]]) -> None:
        """Wait until `found` returns an empty list."""
        while left := found():
            assert self.loop.time() < deadline, f"stuck: {left[0]}"
            await asyncio.sleep(LOOK_SECONDS)

    async def _until_all_is_copied_on(self) -> None:
        before = self.ledger.copied.copy()
        await self.world.spawn(self.world.machine("second feeder"), self._feed(LAST_RECORDS))
        while any(self.ledger.copied[index] == before[index] for index in range(self.plan.copiers)):
            await asyncio.sleep(LOOK_SECONDS)

    # -- before ----------------------------------------------------------------------------------------------------

    async def _feed(self, records: int) -> None:
        plan = self.plan
        async with self._reached(
            lambda: Producer(
                self.bootstrap,
                batch_size=FED_BYTES,
                rng=random.Random(f"{plan.seed}/feeder"),
                wall_clock_ms=self.world.now_ms,
            )
        ) as producer:
            for partition in range(plan.copiers):
                await producer.send_many(INPUT, [INPUT_VALUE] * records, partition=partition)
            await producer.flush()

    async def _create_topics(self) -> None:
        plan = self.plan
        counts = {INPUT: plan.copiers, OUTPUT: plan.partitions}
        wishes = [TopicCreation(name, count, plan.brokers) for name, count in counts.items()]
        deadline = self.loop.time() + READY_SECONDS
        while not all(self.invariants.partition_count(name) for name in counts):
            await self.operator.ask(lambda controller: controller.create_topics(wishes))
            assert self.loop.time() < deadline, "the topics cannot be created"
            await asyncio.sleep(LOOK_SECONDS)

    # -- readers ---------------------------------------------------------------------------------------------------

    async def _follow(self, isolation_level: IsolationLevel) -> None:
        """Consume the output from the start until the run is over."""
        seen: list[tuple[int, int, bytes]] = []
        (self.ledger.committed_reads if isolation_level == "read_committed" else self.ledger.other_reads).append(seen)
        async with self._reached(lambda: self._reader(isolation_level)) as consumer:
            consumer.assign(self._outputs())
            while not self.is_over:
                self._take(await consumer.getmany(timeout_ms=500), seen)

    def _reader(self, isolation_level: IsolationLevel, group_id: str | None = None) -> Consumer:
        plan = self.plan
        return Consumer(
            self.bootstrap,
            group_id=group_id,
            auto_offset_reset="earliest",
            isolation_level=isolation_level,
            max_partition_fetch_bytes=MAX_COPIES_BYTES,
            fetch_min_bytes=plan.reader_min_bytes,
            request_timeout_ms=3000,
            rng=random.Random(f"{plan.seed}/reader/{isolation_level}/{group_id}"),
        )

    def _outputs(self) -> list[TopicPartition]:
        return [TopicPartition(OUTPUT, index) for index in range(self.plan.partitions)]

    async def _look_at_all(self) -> None:
        """Read the logs, the output as a new reader, and the group's offsets, after all transactions have ended."""
        ledger = self.ledger
        for _, partition in self.stability.leaders():
            if partition.topic_partition.topic == OUTPUT:
                ledger.log[partition.topic_partition.partition] = written(partition)
        node = self.world.machine("judge")
        await self._within(SETTLE_SECONDS, "the output is not read", self.world.spawn(node, self._read_all()))
        await self._within(SETTLE_SECONDS, "offsets are unstable", self.world.spawn(node, self._ask_the_group()))

    async def _read_all(self) -> None:
        final = self.ledger.final = {index: [] for index in range(self.plan.partitions)}
        async with self._reached(lambda: self._reader("read_committed")) as consumer:
            consumer.assign(self._outputs())
            ends = await consumer.end_offsets(self._outputs())
            while [place for place, end in ends.items() if await consumer.position(place) < end]:
                for place, records in (await consumer.getmany(timeout_ms=100)).items():
                    final[place.partition] += [(record.offset, bytes(record.value or b"")) for record in records]

    async def _ask_the_group(self) -> None:
        places = [TopicPartition(INPUT, index) for index in range(self.plan.copiers)]
        async with self._reached(lambda: self._reader("read_committed", GROUP)) as consumer:
            found = await consumer.committed(places)
        self.ledger.offsets = {
            place.partition: 0 if offset is None else offset.offset for place, offset in found.items()
        }


def play(plan: TransactionPlan) -> Outcome[TransactionPlan]:
    """Carry out a plan and check the result."""
    command = f"python -m soak.sim.transactions --seed {plan.seed}{' --quick' if plan.is_quick else ''}"
    return outcome_of(TransactionRun, plan, command)


def play_seed(seed: int, *, quick: bool = False) -> Outcome[TransactionPlan]:
    """Carry out the plan that a seed draws."""
    return play(TransactionPlan.draw(seed, quick=quick))
