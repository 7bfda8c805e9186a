"""A whole broker with its clients in one thread: simulated machine, disk, network, clock and random numbers, from one
seed.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..protocol.errors import ConnectionLostError
from ..server.broker import BrokerServer
from ..server.config.broker_config import BrokerConfig
from ..server.metadata.data_tree import DataTree
from ..server.metadata.embedded_store import EmbeddedStore
from ..server.runtime.ports import Ports, Synced
from ..server.security.authorizer import Authorizer
from ..storage.filesystem import File
from .chance import chance
from .cleaning import SimCleaning
from .disk import Mode, SimDisk
from .loop import SimLoop
from .network import NetworkFaults, SimNetwork
from .node import SimNode

T = TypeVar("T")

START_MS = 1_800_000_000_000
HOST, PORT = "10.0.0.1", 9092
FAULT_CHANCE = 0.05
BOOTSTRAP = f"{HOST}:{PORT}"


@dataclass(slots=True)
class WorkDelays:
    """Durations of blocking jobs, in seconds."""

    usual: float = 0.001
    slow_chance: float = 0.0
    slow: float = 0.5


class SimWork:
    """The Work port: jobs of a lane run one after another, each at one instant, and are reported some time later."""

    def __init__(self, loop: SimLoop, rng: random.Random, delays: WorkDelays) -> None:
        self._loop = loop
        self._random = rng
        self._delays = delays
        self._free_at: dict[str, float] = {}

    def submit(self, lane: str, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        self._queue(lane, job, done)

    def _queue(self, lane: str, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        delays, rng = self._delays, self._random
        duration = rng.random() * (delays.slow if rng.random() < delays.slow_chance else delays.usual)
        begins = max(self._loop.time(), self._free_at.get(lane, 0.0))
        ends = self._free_at[lane] = begins + duration
        self._loop.call_at(begins + rng.random() * duration, self._execute, ends, job, done)

    async def run(self, lane: str, job: Callable[[], T]) -> T:
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.submit(lane, job, done)
        return await future

    def sync(self, lane: str, files: Sequence[File], done: Synced) -> None:
        """Run outside of the lane, as threads do: code that relies on an order of the two fails here."""

        def sync_all() -> float:
            for file in files:
                file.fdatasync()
            return 0.0

        self._queue(f"syncs of {lane}", sync_all, done)

    def close(self) -> None:
        """Return nothing: no job runs between two callbacks."""

    def _execute(self, ends: float, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        result, error = None, None
        try:
            result = job()
        except Exception as caught:  # noqa: BLE001 - passed to `done`, whose owner decides
            error = caught
        self._loop.call_at(ends, done, result, error)


@dataclass
class Machines:
    """Common parts of the machines of one world: loop, network, clock, and random numbers."""

    loop: SimLoop
    seed: int
    settings: Mapping[str, str] = field(default_factory=dict)
    network_faults: NetworkFaults = field(default_factory=NetworkFaults)
    delays: WorkDelays = field(default_factory=WorkDelays)
    fault_points: frozenset[str] = frozenset()
    """Named fault points of the broker that fire occasionally."""

    def __post_init__(self) -> None:
        self.random = chance(f"{self.seed}/world")
        self.network = SimNetwork(self.loop, chance(f"{self.seed}/network"), self.network_faults)

    def now_ms(self) -> int:
        """Return the wall clock of this world."""
        return START_MS + int(self.loop.time() * 1000)

    def machine(self, name: str) -> SimNode:
        """Create a machine for clients."""
        return SimNode(name)

    def spawn(self, node: SimNode, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a program of a machine. It is kept, so that a killed program's `finally` never runs."""
        task: asyncio.Task[T] = node.run(self.loop.create_task, work)
        self.loop.keep(task)
        return task

    async def done(self, node: SimNode, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a program of a machine. Raises ConnectionLostError if the machine dies before."""
        task, died = self.spawn(node, work), self.loop.create_future()

        def die() -> None:
            died.set_result(None)

        node.on_kill[die] = None
        try:
            await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
        finally:
            node.on_kill.pop(die, None)
        if not task.done():
            raise ConnectionLostError(f"{node.name} is dead")
        return task.result()


class World(Machines):
    """One broker with its clients."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.broker = SimBroker(self)

    async def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic in the running broker. Raises KafkaError."""
        assert self.broker.server is not None
        await self.spawn(self.broker.node, self.broker.server.create_topic(name, partitions, dict(settings or {})))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic of the running broker. Raises KafkaError."""
        assert self.broker.server is not None
        await self.spawn(self.broker.node, self.broker.server.delete_topic(name))


class Machine(ABC):
    """A broker's machine: it can be killed, lose its power, and be started again with its disk."""

    def __init__(self, world: Machines, host: str, name: str) -> None:
        self.world = world
        self.host = host
        self.node = SimNode(name)
        self.clock_ahead_ms = 0
        self.disk = SimDisk(now_ms=self.now_ms, keep_log=False)
        self.server: BrokerServer | None = None
        self.authorizer: Authorizer | None = None
        """ACLs of each of its lives."""
        self.lives = 0
        self.touched: dict[str, int] = {}
        """The offsets up to which the cleaner has read each directory, in all lives."""

    def now_ms(self) -> int:
        """Return this machine's wall clock."""
        return self.world.now_ms() + self.clock_ahead_ms

    async def start(self) -> None:
        """Start with the present disk; returns when clients are served."""
        await self.begin()

    def begin(self) -> asyncio.Task[None]:
        """Start, without waiting: a broker killed during its start never serves."""
        self.lives += 1
        return self.world.spawn(self.node, self._start())

    async def stop(self) -> None:
        """Shut down cleanly. Raises ConnectionLostError if it is killed before the end."""
        assert self.server is not None
        await self.world.done(self.node, self.server.stop())
        self.server = None
        self._new_life("kill")

    def crash(self, mode: Mode) -> None:
        """Apply kill -9 (`kill`) or loss of power (`A`, `B`): everything running ends, the disk keeps its contents
        accordingly.
        """
        self.world.loop.keep(self.server)
        self.server = None
        self._new_life(mode)

    def _new_life(self, mode: Mode) -> None:
        self.node.kill()
        self.disk.crash()
        self._life_ended()
        self.disk = self.disk.survivor(self.world.random.randrange(2**32), mode)
        self.node.start()

    def _life_ended(self) -> None:  # noqa: B027 - most machines notify no others
        """Notify others immediately."""

    def _properties(self) -> dict[str, str]:
        return {
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "allow.insecure.listeners": "true",
            "log.dirs": "/data",
            **self.world.settings,
        }

    @abstractmethod
    def _build(self, config: BrokerConfig, ports: Ports) -> BrokerServer:
        """Return the broker of one life."""

    async def _start(self) -> None:
        world = self.world
        rng = chance(f"{world.seed}/{self.node.name}/{self.lives}")

        def fault(name: str) -> bool:
            return name in world.fault_points and rng.random() < FAULT_CHANCE

        ports = Ports(
            filesystem=self.disk,
            now_ms=self.now_ms,
            random=rng,
            token_bytes=rng.randbytes,
            work=SimWork(world.loop, rng, world.delays),
            cleaning=self._cleaning(fault),
            machine_name="broker",
            fault=fault,
        )
        server = self._build(BrokerConfig.from_properties(self._properties()), ports)
        await server.start()
        self.server = server

    def _cleaning(self, fault: Callable[[str], bool]) -> SimCleaning:
        cleaning = SimCleaning(self.disk, chance(f"{self.world.seed}/cleaner/{self.lives}"), fault)
        cleaning.touched = self.touched
        return cleaning


class SimBroker(Machine):
    """A standalone broker with its own metadata tree."""

    def __init__(self, world: Machines, host: str = HOST) -> None:
        super().__init__(world, host, "broker" if host == HOST else f"broker at {host}")
        self._tree = DataTree(world.now_ms)
        self._session: int | None = None

    def _life_ended(self) -> None:
        if self._session is not None:
            self._tree.end_session(self._session)

    def _properties(self) -> dict[str, str]:
        return {"metadata.store.path": "/none", **super()._properties()}

    def _build(self, config: BrokerConfig, ports: Ports) -> BrokerServer:
        return BrokerServer(config, ports, self.world.loop, open_store=self._open_store, authorizer=self.authorizer)

    def _open_store(self) -> EmbeddedStore:
        """The metadata tree is a separate durable service; its sessions end with the broker's life."""
        store = EmbeddedStore(self._tree)
        self._session = store.session_id
        self._tree.apply(self._tree.plan_end_of_unknown_sessions())
        return store
