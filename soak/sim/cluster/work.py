"""Clients in addition to the main topic's: a topic that is created and deleted, and a group that rebalances."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from soak.sim.workload import TOPIC

from barnabas.clients.consumer import Consumer
from barnabas.clients.group.settings import GroupProtocol
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.admin_manager import TopicCreation

if TYPE_CHECKING:
    from soak.sim.cluster.clients import ClusterClients
    from soak.sim.cluster.scenario import ClusterRun

CHURNED = TopicPartition("churn", 0)
MEMBERS = "members"
MAX_MEMBERS = 3
PAUSE = 0.05


@dataclass
class Commits:
    """The committed offsets of a group for one partition; each reader continues from the offset that it finds."""

    acknowledged: int = -1
    unsure: set[int] = field(default_factory=set)
    """The commits without a response, which may have been executed, possibly late."""
    found: int | None = None
    """The committed offset at the end."""

    def begin(self, offset: int) -> None:
        """Note that a commit was sent."""
        self.unsure.add(offset)

    def done(self, offset: int) -> None:
        """Note that a commit was acknowledged."""
        self.acknowledged = max(self.acknowledged, offset)
        self.unsure.discard(offset)

    def check(self) -> list[str]:
        if self.found is None or self.found == self.acknowledged or self.found in self.unsure:
            return []
        return [f"lost commit: {self.acknowledged} was acknowledged, {self.found} was found"]


class Work(Protocol):
    """A client that continues under every fault until the run is over."""

    name: str

    async def go(self) -> None:
        """Run the client."""
        ...

    async def look(self) -> None:
        """Read the final state, after all faults and all clients have ended."""
        ...

    def check(self) -> list[str]:
        """Return all violations."""
        ...


class Churn(ABC):
    """A topic that is repeatedly created, written, read and deleted with the same name and a new topic id."""

    name = "churn"

    def __init__(self, run: ClusterClients) -> None:
        self._run = run
        self._random = random.Random(f"{run.plan.seed}/churn")
        self._violations: list[str] = []
        self._sent: dict[str, set[bytes]] = {}
        """The sent values of each topic id."""
        self._acknowledged: dict[str, dict[int, bytes]] = {}

    async def go(self) -> None:
        run, former = self._run, ""
        while not run.is_over:
            if self._present() in ("", former):
                await self._create()
                await asyncio.sleep(PAUSE)
                continue
            former = self._present()
            await self._write(former)
            await self._read(former)
            while not run.is_over and self._present() == former:
                await self._delete()
                await asyncio.sleep(PAUSE)

    @abstractmethod
    async def _create(self) -> None:
        """Request the creation of the topic."""

    @abstractmethod
    async def _delete(self) -> None:
        """Request the deletion of the topic."""

    @abstractmethod
    def _present(self) -> str:
        """Return the id of the existing topic, or an empty string."""

    @abstractmethod
    def _is_being_deleted(self) -> bool:
        """Return whether a deletion was requested and has not ended."""

    async def _write(self, topic_id: str) -> None:
        sent = self._sent.setdefault(topic_id, set())
        acknowledged = self._acknowledged.setdefault(topic_id, {})
        rng = random.Random(self._random.random())
        async with self._run._reached(
            lambda: Producer(
                self._run.bootstrap,
                delivery_timeout_ms=4000,
                request_timeout_ms=2000,
                rng=rng,
                wall_clock_ms=self._run.world.now_ms,
            )
        ) as producer:
            for number in range(rng.randrange(1, 20)):
                value = f"{topic_id}/{number}".encode()
                sent.add(value)
                try:
                    found = await producer.send_and_wait("churn", value, partition=0)
                except KafkaError:
                    continue
                acknowledged[found.offset] = value

    async def _read(self, topic_id: str) -> None:
        """Read until all acknowledged records are read. A broker with old metadata may return the deleted topic."""
        wanted = set(self._acknowledged[topic_id].items())
        while wanted and not self._run.is_over:
            wanted -= set((await self._records(2.0)).items())

    async def _records(self, seconds: float) -> dict[int, bytes]:
        """Read the records from the first offset on, for some time or to the end."""
        loop, found = self._run.loop, dict[int, bytes]()
        deadline = loop.time() + seconds
        rng = random.Random(self._random.random())
        async with self._run._reached(
            lambda: Consumer(self._run.bootstrap, auto_offset_reset="earliest", request_timeout_ms=2000, rng=rng)
        ) as consumer:
            consumer.assign([CHURNED])
            end: int | None = None
            while loop.time() < deadline and (end is None or len(found) < end):
                try:
                    for record in (await consumer.getmany(timeout_ms=200)).get(CHURNED, []):
                        found[record.offset] = record.value or b""
                except KafkaError:
                    await asyncio.sleep(PAUSE)
                end = consumer.high_watermark(CHURNED)
        return found

    async def look(self) -> None:
        topic_id = self._present()
        if not topic_id or self._is_being_deleted():
            return
        found = await self._records(10.0)
        for offset, value in self._acknowledged.get(topic_id, {}).items():
            if found.get(offset) != value:
                self._violations.append(f"lost: {value!r} was acknowledged at {offset}, found {found.get(offset)!r}")
        for offset, value in found.items():
            if value not in self._sent.get(topic_id, ()):
                self._violations.append(f"resurrected: {value!r} is at {offset} of topic {topic_id}")

    def check(self) -> list[str]:
        return self._violations


class ClusterChurn(Churn):
    """The repeatedly created topic of a cluster with ZooKeeper."""

    _run: ClusterRun

    async def _create(self) -> None:
        await self._run.operator.ask(lambda controller: controller.create_topics([TopicCreation("churn", 1, 3)]))

    async def _delete(self) -> None:
        await self._run.operator.ask(lambda controller: controller.delete_topics(["churn"]))

    def _present(self) -> str:
        topic = self._run.invariants.topic("churn")
        return "" if topic is None else topic["topic_id"]

    def _is_being_deleted(self) -> bool:
        return self._run.world.ensemble.tree.look("/kafka/admin/delete_topics/churn") is not None


class Members:
    """A group whose members join, leave and die.

    Every record below a committed offset was read, and each partition has one owner in a generation.
    """

    name = MEMBERS

    def __init__(self, run: ClusterClients, *, is_classic: bool = False) -> None:
        self._run = run
        self._random = random.Random(f"{run.plan.seed}/members")
        drawn: GroupProtocol = self._random.choice(("classic", "consumer"))
        self._protocol: GroupProtocol = "classic" if is_classic else drawn
        self._commits: dict[TopicPartition, Commits] = {}
        self._read: dict[TopicPartition, set[int]] = {}
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        self._violations: list[str] = []

    async def go(self) -> None:
        await asyncio.gather(*(self._seat(number) for number in range(self._random.randint(2, MAX_MEMBERS))))

    async def _seat(self, number: int) -> None:
        """Run one member after another, until the run is over."""
        run, life = self._run, 0
        while not run.is_over:
            life += 1
            machine = run.world.machine(f"member-{number}-{life}")
            is_over = asyncio.Event()
            task = run.world.spawn(machine, self._take_part(f"{number}/{life}", is_over))
            ends_at = run.loop.time() + self._random.uniform(0.5, 5.0)
            while run.loop.time() < ends_at and not run.is_over:
                await asyncio.sleep(PAUSE)
            if self._random.random() < 0.5:
                machine.kill()
            else:
                is_over.set()
                await task

    async def _take_part(self, name: str, is_over: asyncio.Event) -> None:
        rng = random.Random(f"{self._run.plan.seed}/member/{name}")
        async with self._run._reached(lambda: self._consumer(rng)) as consumer:
            consumer.subscribe([TOPIC])
            while not is_over.is_set():
                try:
                    found = await consumer.getmany(timeout_ms=200, max_records=50)
                    self._note(name, consumer)
                    for partition, records in found.items():
                        self._read.setdefault(partition, set()).update(record.offset for record in records)
                    # A separate loop: a commit may fail, and the consumer does not return these records again.
                    for partition, records in found.items():
                        await self._commit(consumer, partition, records[-1].offset + 1)
                except KafkaError:
                    # The member was fenced, or a batch is corrupt: continue as a new member does.
                    await asyncio.sleep(PAUSE)

    async def _commit(self, consumer: Consumer, partition: TopicPartition, offset: int) -> None:
        commits = self._commits.setdefault(partition, Commits())
        commits.begin(offset)
        await consumer.commit({partition: offset}, timeout_ms=2000)
        commits.done(offset)

    def _note(self, name: str, consumer: Consumer) -> None:
        """Check that each partition has one owner in a generation of the classic protocol."""
        generation = consumer.group_metadata().generation
        if self._protocol == "classic" and generation >= 0:
            for partition in sorted(consumer.assignment):
                owner = self._owners.setdefault((generation, partition), name)
                if owner != name:
                    self._violations.append(f"owners: {partition} has {owner} and {name} in generation {generation}")

    def _consumer(self, rng: random.Random) -> Consumer:
        if self._protocol == "consumer":
            return self._new(rng)
        return self._new(rng, session_timeout_ms=1500, heartbeat_interval_ms=300)

    def _new(self, rng: random.Random, **options: Any) -> Consumer:
        return Consumer(
            self._run.bootstrap,
            group_id=MEMBERS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_protocol=self._protocol,
            request_timeout_ms=2000,
            rng=rng,
            **options,
        )

    async def look(self) -> None:
        async with self._run._reached(lambda: self._consumer(random.Random(self._random.random()))) as consumer:
            for partition, found in (await consumer.committed(list(self._commits))).items():
                self._commits[partition].found = -1 if found is None else found.offset

    def check(self) -> list[str]:
        found = [violation for commits in self._commits.values() for violation in commits.check()]
        for partition, commits in self._commits.items():
            skipped = set(range(commits.found or 0)) - self._read[partition]
            if skipped:
                found.append(f"skipped: {partition} is committed to {commits.found} without {sorted(skipped)[:5]}")
        return [*self._violations, *found]


WORK: Mapping[str, Callable[[ClusterRun], Work]] = {
    "churn": ClusterChurn,
    "members": lambda run: Members(run, is_classic=run.plan.speaks_as_before),
}
