"""An event loop without time and without sockets: virtual seconds pass when nothing else is left to do.

What asyncio's base loop does to call back, now or later, is replaced, and its sockets. Callbacks belong to a *node* (a
simulated machine): within a node they run in the order they were scheduled, as asyncio promises; between nodes a seeded
choice decides. Killing a node drops its callbacks for ever: no `finally` of a dead process runs, as with kill -9.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import random
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from .chance import chance
from .host import TCP, NotSimulatedError
from .node import NODE, SimNode

MOST_STEPS = 5_000_000
MOST_STEPS_AT_ONCE = 500_000
"""Without a moment in which nobody has anything to do."""
STEPS_OF_GARBAGE = 50_000
"""Garbage is collected after so many, where it is not otherwise."""
LONGEST_CALL = 0.001
"""What is called in an executor begins within this time."""
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


WORLD = SimNode("world")
"""Whatever belongs to no machine: the test itself, the network, the nemesis."""
NOBODY = (WORLD, 0)


class DeadlockError(AssertionError):
    """Nothing is ready and no timer is set, yet the simulation has not ended."""


class StepLimitError(AssertionError):
    """The simulation goes on without getting anywhere."""


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where in memory it lies."""

    def __init__(self, loop: Any, coro: Any, **named: Any) -> None:
        self._number: int = next(loop.numbers)
        super().__init__(coro, loop=loop, **named)

    def __hash__(self) -> int:
        return self._number


class SimFuture(asyncio.Future[Any]):
    """As `SimTask`."""

    def __init__(self, loop: SimLoop) -> None:
        self._number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


def _nothing() -> None:
    """What a cancelled callback does."""


class SimHandle(asyncio.TimerHandle):
    """A callback of a node, to be called now or at a time; the loop needs no more of it than this."""

    __slots__ = ("life", "node")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        # As the base class does it, without the questions that it asks the loop: there are a million of these.
        if context is None:
            self.node, self.life = NODE.get(NOBODY)
            context = contextvars.copy_context()
        else:
            self.node, self.life = context.get(NODE, NOBODY)
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._when = when
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            # Nothing is held that is not needed any more; `BaseEventLoop` would count it, too.
            self._callback, self._args = _nothing, ()


class SimLoop(asyncio.BaseEventLoop):
    """Runs callbacks of all nodes in one thread under virtual time. The same seed gives the same run."""

    _closed: bool
    _stopping: bool

    def __init__(self, rng: random.Random, *, most_steps: int = MOST_STEPS, step_seconds: float = 0.0) -> None:
        """Each step takes `step_seconds`; with 0 who polls without waiting, or for less than a float tells, hangs."""
        super().__init__()
        self._step_seconds = step_seconds
        self._random = rng
        self._now = 0.0
        self._queues: dict[SimNode, deque[SimHandle]] = {}
        """What is ready, by node."""
        self._timers: list[tuple[float, int, SimHandle]] = []
        """A heap: when, and in the order in which they were set."""
        self._set_timers = count()
        self._steps = 0
        self._most_steps = most_steps
        self._steps_before = 0
        """Until nobody had anything to do last."""
        self._digest = 0
        self._stamped, self._stamp = -1.0, b""
        """The time as it goes into the digest, and when that was."""
        self._kept: list[object] = []
        self.frozen: set[SimNode] = set()
        """Machines that stand still: what happens to them waits, as with SIGSTOP."""
        self.network: Any = None
        self.set_exception_handler(self._unhandled)
        self.set_task_factory(SimTask)
        self.numbers = count()
        """What tasks and futures are told apart by."""
        self.unhandled: list[dict[str, Any]] = []
        """What callbacks and tasks raised with nobody to catch it; a run that has any has failed."""

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        """Of which sets are in the same order in each run."""
        return SimFuture(self)

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def digest(self) -> int:
        """Equal for equal runs: of whose turn it was, and when."""
        return self._digest

    def keep(self, thing: object) -> None:
        """Hold on to what a dead node left, so that garbage collection does not run its `finally` blocks."""
        self._kept.append(thing)

    def keep_tasks(self) -> None:
        """Hold on to all tasks: nobody else may, of those that belong to a machine that is about to die."""
        self._kept.extend(asyncio.all_tasks(self))

    def call_in(
        self, node: SimNode, delay: float, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Schedule a callback of a node, whoever calls."""
        return self.call_at(self._now + delay, callback, *arguments, context=node.context)

    # -- what the base loop does, without what only threads, sockets and its debug mode need -------------------------

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = SimHandle(self._now, callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """There is no other thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = SimHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._set_timers), handle))
        return handle

    def _enqueue(self, handle: SimHandle) -> None:
        queue = self._queues.get(handle.node)
        if queue is None:
            self._queues[handle.node] = deque((handle,))
        else:
            queue.append(handle)

    def _run_once(self) -> None:
        """One step after the other, until somebody stops the loop."""
        while True:
            self._collect_due()
            queues = self._queues
            nodes = [node for node in queues if node not in self.frozen] if self.frozen else list(queues)
            if nodes:
                self._step(nodes[0] if len(nodes) == 1 else nodes[self._below(len(nodes))])
            else:
                self._jump()
            if self._stopping:
                return

    def _below(self, most: int) -> int:
        """`randrange` without its checks of what it is given."""
        draw, bits = self._random.getrandbits, most.bit_length()
        number = draw(bits)
        while number >= most:
            number = draw(bits)
        return number

    def _step(self, node: SimNode) -> None:
        """Have a node do the next thing."""
        queue = self._queues[node]
        handle = queue.popleft()
        if not queue:
            del self._queues[node]
        steps = self._steps = self._steps + 1
        self._now += self._step_seconds
        if steps > self._most_steps:
            raise StepLimitError(f"{steps} steps at {self._now:.3f} virtual seconds")
        if steps - self._steps_before > MOST_STEPS_AT_ONCE:
            raise StepLimitError(f"{node.name} is busy for ever at {self._now:.3f} virtual seconds: {handle!r}")
        if not steps % STEPS_OF_GARBAGE and not gc.isenabled():
            gc.collect()
        if self._stamped != self._now:
            self._stamped, self._stamp = self._now, f"{self._now} ".encode()
        self._digest = zlib.crc32(node.label, zlib.crc32(self._stamp, self._digest))
        if handle._cancelled:
            return
        if node.is_alive(handle.life):
            handle._run()
        else:
            self._kept.append(handle)

    def _collect_due(self) -> None:
        """Sort the timers whose time has come into the nodes' queues."""
        timers, now = self._timers, self._now
        while timers and (timers[0][0] <= now or timers[0][2]._cancelled):
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self._enqueue(handle)

    def _jump(self) -> None:
        """Nothing is ready: let time pass until the next timer."""
        if not self._timers:
            if self._stopping:
                return
            raise DeadlockError(f"nothing is left to happen at {self._now:.3f} virtual seconds")
        self._now = max(self._now, self._timers[0][0])
        self._steps_before = self._steps

    def _write_to_self(self) -> None:
        """There is no other thread to wake the loop from."""

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unhandled.append(context)

    # -- sockets ---------------------------------------------------------------------------------------------------

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, start_serving: bool = True, **_: Any
    ) -> Any:
        server = self.network.listen(protocol_factory, host, port)
        if start_serving:
            await server.start_serving()
        return server

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, ssl: Any = None, **_: Any
    ) -> Any:
        if ssl or host is None:
            raise NotSimulatedError("connections of a simulation are plain, and to a host and a port")
        return await self.network.connect(protocol_factory, str(host), int(port))

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """There are no names: whoever connects is told then whether somebody is there."""
        return [(*TCP, "", (str(host), int(port or 0)))]

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Nobody sends any."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call it at one instant, a moment from now: there are no threads."""
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - for whoever awaits it
                future.set_exception(error)

        self.call_later(self._random.random() * LONGEST_CALL, call)
        return future


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotSimulatedError(f"loop.{name} is not simulated")

    return refuse


for _name in (
    *("add_reader", "add_writer", "connect_read_pipe", "connect_write_pipe"),
    *("create_datagram_endpoint", "create_unix_connection", "create_unix_server", "start_tls"),
    *("sock_accept", "sock_connect", "sock_recv", "sock_sendall", "subprocess_exec", "subprocess_shell"),
):
    setattr(SimLoop, _name, _refusal(_name))


FORMER: list[SimLoop] = []
"""The world that ended last. What came out of it is still being looked at."""
MOST_AWAITS = 20
"""In the `finally` blocks of one task."""


def run(main: Callable[[SimLoop], Any], seed: int, *, most_steps: int = MOST_STEPS, step_seconds: float = 0.0) -> Any:
    """Run `await main(loop)` to its end under virtual time."""
    while FORMER:
        bury(FORMER.pop())
    loop = SimLoop(chance(seed), most_steps=most_steps, step_seconds=step_seconds)
    context = contextvars.copy_context()
    try:
        task = context.run(loop.create_task, main(loop))
        result = loop.run_until_complete(task)
    finally:
        leave(loop)
    if loop.unhandled:
        raise AssertionError(f"unhandled: {loop.unhandled[0]}")
    return result


def leave(loop: SimLoop) -> None:
    """End the world: what is still pending is forgotten without a sound."""
    task: Any
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False
        loop.keep(task)
    loop._queues.clear()
    loop._timers.clear()
    loop.close()
    FORMER.append(loop)


def bury(loop: SimLoop) -> None:
    """Let go of a world. The `finally` blocks in it run now, to no effect: else they would in the middle of another."""
    # The world's machine outlives every world, and what is open on it would keep each of them.
    WORLD.on_kill.clear()
    for task in asyncio.all_tasks(loop):
        work: Any = task.get_coro()
        for _ in range(MOST_AWAITS):
            # Raises if it awaits something once more.
            with suppress(BaseException):
                work.close()
                break
