"""Faults of a simulation: injected one after another, or at random, several at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import TypeAlias

from ..testing.faults import RequestFaults
from .chance import chance
from .cluster import ClusterWorld, SimClusterBroker
from .disk import Mode
from .nemesis import ACTS, NEEDS_DISK, STATES, Harm, Nemesis
from .node import SimNode
from .programs import Program

PROGRAM_ACTS = ("kill program", "pause program")
"""Faults of programs, in addition to faults of brokers."""
PROGRAM_SHARE = 0.7
MENU = (*ACTS, *STATES, *PROGRAM_ACTS)
Side: TypeAlias = int | Program
"""A broker by its id, or a program."""


class Storm(Nemesis):
    """A nemesis with faults of programs, too."""

    def __init__(self, world: ClusterWorld, harm: Harm, rng: Random, programs: Mapping[str, Program]) -> None:
        super().__init__(world, harm)
        self.random = rng
        self._programs = programs
        self._acts |= {"kill program": self._kill_program, "pause program": self._pause_program}

    async def _kill_program(self) -> None:
        program = self._running_program()
        if program is not None:
            program.kill()
            await self._last()
            if not program.is_running and not program.is_stopped:
                program.start()

    async def _pause_program(self) -> None:
        program = self._running_program()
        if program is not None:
            self.world.loop.frozen.add(program.node)
            await self._last()
            self.world.loop.frozen.discard(program.node)

    def _running_program(self) -> Program | None:
        frozen = self.world.loop.frozen
        running = [one for one in self._programs.values() if one.is_running and one.node not in frozen]
        return self.random.choice(running) if running else None


class ClusterFaults:
    """All faults of the brokers 1, 2, 3 …, of their links, and of programs. Times are seconds."""

    def __init__(self, world: ClusterWorld, programs: Mapping[str, Program], log: list[str]) -> None:
        self._world = world
        self._programs = programs
        self._log = log
        self._nemesis = Nemesis(world, Harm(frozenset(), 0.0, 0.0, 0.0, 0))
        self._nemesis.done = log
        self._storms = 0

    # -- random faults -----------------------------------------------------------------------------------------------

    async def random(self, seconds: float = 30.0, *, of: Collection[str] = MENU) -> None:
        """Inject faults for this time: the seed selects them from the menu, their frequency and their number.

        All are repaired when this returns: brokers and programs run, and all links work. Raises ValueError for a name
        that is not on the `MENU`.
        """
        unknown = sorted(set(of) - set(MENU))
        if unknown:
            raise ValueError(f"unknown fault {unknown[0]!r}. Expected one of: {', '.join(MENU)}")
        self._storms += 1
        rng = chance(f"{self._world.seed}/storm/{self._storms}")
        storm = Storm(self._world, self._draw(rng, seconds, of), rng, self._programs)
        storm.done = self._log
        storm.set_states()
        await storm.rage()
        storm.calm_down()

    def _draw(self, rng: Random, seconds: float, of: Collection[str]) -> Harm:
        """Return a part of the menu, which always has faults of programs."""
        disk = all(self._is_durable(broker) for broker in self._world.running)
        menu = [fault for fault in MENU if fault in of and (disk or fault not in NEEDS_DISK)]
        share = rng.choice([0.2, 0.4, 0.7])
        faults = [fault for fault in menu if rng.random() < (PROGRAM_SHARE if fault in PROGRAM_ACTS else share)]
        return Harm(
            faults=frozenset(faults or menu[:1]),
            seconds=seconds,
            gap=rng.uniform(0.2, 5.0),
            downtime=rng.uniform(0.05, 10.0),
            nemeses=rng.randint(1, 3),
        )

    @staticmethod
    def _is_durable(broker: SimClusterBroker) -> bool:
        assert broker.server is not None
        return bool(broker.server.state.config.acks_all_durability == "disk")

    # -- one broker --------------------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        """Kill a broker. ZooKeeper detects it when its session expires."""
        self._crash(broker, "kill", f"kill broker {broker}")

    def lose_power(self, broker: int) -> None:
        """Kill a broker; any part of its unsynced data may be lost."""
        self._crash(broker, "A", f"broker {broker} loses its power")

    async def stop(self, broker: int) -> None:
        """Shut a broker down cleanly: others become leaders first."""
        self._note(f"stop broker {broker}")
        await self._running(broker).stop()

    async def start(self, broker: int) -> None:
        """Start a broker again with its disk; clients are served when this returns. Raises RuntimeError."""
        found = self._find(broker)
        if found.server is not None:
            raise RuntimeError(f"broker {broker} is running")
        self._note(f"start broker {broker}")
        await self._nemesis.bring_up(found)

    def expire(self, broker: int) -> None:
        """Expire its session with ZooKeeper, as after a long pause: others become leaders, and it registers again."""
        self._note(f"the session of broker {broker} expires")
        self._world.ensemble.expire_all_of(self._running(broker).node)

    def requests(self, broker: int) -> RequestFaults:
        """Return the faults of a broker's requests: errors, lost responses, silence, delays, as in
        `barnabas.testing`.
        """
        return self._find(broker).requests

    def jump_clock(self, broker: int, seconds: float) -> None:
        """Set its wall clock forward or back."""
        self._note(f"the clock of broker {broker} jumps by {seconds} s")
        self._find(broker).clock_ahead_ms += int(seconds * 1000)

    def fill_disk(self, broker: int, room: int = 0) -> None:
        """Limit the free space of its disk to this number of bytes, until `free_disk`."""
        self._note(f"the disk of broker {broker} is full")
        disk = self._find(broker).disk
        disk.capacity = disk.used + room

    def free_disk(self, broker: int) -> None:
        """Remove the limit."""
        self._find(broker).disk.capacity = None

    # -- brokers and programs ----------------------------------------------------------------------------------------

    def pause(self, side: Side) -> None:
        """Pause, as after SIGSTOP."""
        self._note(f"{self._node(side).name} stands still")
        self._world.loop.frozen.add(self._node(side))

    def resume(self, side: Side) -> None:
        """Resume, with all pending events."""
        self._world.loop.frozen.discard(self._node(side))

    def cut(self, side: Side, other: Side | None = None, *, both_ways: bool = True) -> None:
        """Hold back all bytes in one direction, to ZooKeeper by default, until `heal`."""
        sender, receiver = self._node(side), self._other(other)
        self._note(f"{sender.name} is cut from {receiver.name}")
        self._world.network.cut(sender, receiver, both_ways=both_ways)

    def slow(self, side: Side, other: Side, seconds: float) -> None:
        """Delay all bytes in one direction, until `heal`."""
        self._note(f"{self._node(side).name} is slow to reach {self._node(other).name}")
        self._world.network.slow[self._node(side), self._node(other)] = seconds

    def heal(self, side: Side | None = None, other: Side | None = None) -> None:
        """Restore the links between two nodes, ZooKeeper by default; without arguments, all links."""
        if side is None:
            self._world.network.heal()
        else:
            self._world.network.mend(self._node(side), self._other(other))

    def reset_connections(self, share: float = 1.0) -> None:
        """Break a share of all connections."""
        self._note("connections break")
        self._world.network.reset_some(share)

    # -- ZooKeeper ---------------------------------------------------------------------------------------------------

    def zookeeper_down(self) -> None:
        """Stop its responses, until `zookeeper_up`."""
        self._note("ZooKeeper is down")
        self._world.ensemble.go_down()

    def zookeeper_up(self) -> None:
        """Resume its responses."""
        self._world.ensemble.come_up()

    # -- internals ---------------------------------------------------------------------------------------------------

    def _crash(self, broker: int, mode: Mode, what: str) -> None:
        found = self._running(broker)
        self._note(what)
        self._world.loop.frozen.discard(found.node)
        found.crash(mode)

    def _find(self, broker: int) -> SimClusterBroker:
        if broker not in self._world.brokers:
            raise ValueError(f"unknown broker {broker!r}. Expected one of {list(self._world.brokers)}")
        return self._world.brokers[broker]

    def _running(self, broker: int) -> SimClusterBroker:
        found = self._find(broker)
        if found.server is None:
            raise RuntimeError(f"broker {broker} is not running")
        return found

    def _node(self, side: Side) -> SimNode:
        return side.node if isinstance(side, Program) else self._find(side).node

    def _other(self, side: Side | None) -> SimNode:
        return self._world.ensemble.node if side is None else self._node(side)

    def _note(self, what: str) -> None:
        self._log.append(f"{self._world.loop.time():.3f} {what}")
