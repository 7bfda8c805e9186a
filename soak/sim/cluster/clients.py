"""The clients of a simulated cluster with ZooKeeper or KRaft."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable

from soak.sim.cluster.work import Commits
from soak.sim.history import WriterKind
from soak.sim.workload import TOPIC, Load, Workload

from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.machines import Machines

GROUP = "g"
COMMITTED = TopicPartition(TOPIC, 0)
LOOK_SECONDS = 0.05


class ClusterClients(Workload):
    """Producers, a consumer, and a group that commits increasing offsets."""

    def __init__(self, world: Machines, plan: Load, bootstrap: str) -> None:
        super().__init__(world, plan, bootstrap)
        self._written = 0
        """The number of partitions that have producers."""
        self.clients: list[asyncio.Task[None]] = []
        self.commits = Commits()

    @property
    def _kinds(self) -> tuple[WriterKind, ...]:
        return (WriterKind(),)

    async def _within(self, seconds: float, complaint: str, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self.loop.keep(task)
        done, _ = await asyncio.wait([task], timeout=seconds)
        assert done, f"stuck: {complaint} within {seconds} s"
        await task

    def _write(self) -> None:
        """Start producers for the partitions that have no producers yet."""
        world, partitions = self.world, range(self._written, len(self._partitions()))
        self._written = partitions.stop
        self.clients += [
            world.spawn(world.machine(f"writer-{partition}-{number}"), self._produce(partition, number))
            for partition in partitions
            for number in range(self.plan.writers)
        ]

    async def _read(self) -> None:
        """Consume all initial partitions until the run is over, and read corrupt batches again."""
        seen: list[tuple[int, int, bytes]] = []
        self.history.seen.append(seen)
        async with self._reached(lambda: self._consumer(1)) as consumer:
            consumer.assign(self._partitions())
            while not self.is_over:
                try:
                    self._take(await consumer.getmany(timeout_ms=500), seen)
                except KafkaError as error:
                    if error.code is not ErrorCode.CORRUPT_MESSAGE:
                        raise
                    await asyncio.sleep(LOOK_SECONDS)

    def _kind(self, writer: str) -> WriterKind:
        kinds = self._kinds
        return kinds[int(writer.partition("/")[2]) % len(kinds)]

    async def _commit(self) -> None:
        """Commit increasing offsets in a group until the run is over."""
        commits = self.commits
        rng = random.Random(f"{self.plan.seed}/committer")
        async with self._reached(lambda: self._member(rng)) as consumer:
            consumer.assign([COMMITTED])
            offset = 0
            while not self.is_over:
                commits.begin(offset)
                try:
                    await consumer.commit({COMMITTED: offset})
                except KafkaError as error:
                    if not error.code.retriable:
                        raise
                else:
                    commits.done(offset)
                offset += 1
                await asyncio.sleep(rng.random() * 0.2)

    async def _find_commit(self) -> None:
        async with self._reached(lambda: self._member(random.Random(f"{self.plan.seed}/judge"))) as consumer:
            found = (await consumer.committed([COMMITTED])).get(COMMITTED)
            self.commits.found = -1 if found is None else found.offset

    def _member(self, rng: random.Random) -> Consumer:
        return Consumer(self.bootstrap, group_id=GROUP, enable_auto_commit=False, rng=rng, request_timeout_ms=3000)

    async def _probe_all(self) -> None:
        """Wait until each partition acknowledges a new record."""
        await asyncio.gather(
            *(
                self.world.spawn(self.world.machine(f"probe-{partition}"), self._probe(partition))
                for _, partition in self._partitions()
            )
        )

    async def _probe(self, partition: int) -> None:
        name, value = f"{partition}/probe", f"{partition}/probe/0".encode()
        self.history.kinds[name] = WriterKind()
        rng = random.Random(f"{self.plan.seed}/{name}")
        async with self._reached(
            lambda: Producer(self.bootstrap, request_timeout_ms=2000, rng=rng, wall_clock_ms=self.world.now_ms)
        ) as producer:
            self.history.sent[value] = name
            future = await producer.send(TOPIC, value, partition=partition)
            future.add_done_callback(lambda done: self._sent(value, done))
            await future
