"""An event loop with virtual time and without sockets: time advances when no other work is left.

It replaces the scheduling of asyncio's base loop, and its sockets. Callbacks belong to a *node* (a simulated machine):
within a node they run in the order in which they were scheduled, as asyncio guarantees; between nodes a seeded choice
decides. Killing a node drops its callbacks permanently: no `finally` of a dead process runs, as with kill -9.
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

MAX_STEPS = 5_000_000
MAX_STEPS_AT_ONCE = 500_000
"""Maximum number of steps without an idle moment."""
STEPS_OF_GARBAGE = 50_000
"""Number of steps after which garbage is collected, if not earlier."""
LONGEST_CALL = 0.001
"""Maximum delay of the start of an executor call."""
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


WORLD = SimNode("world")
"""The owner of everything outside of machines: the test itself, the network, the nemesis."""
NOBODY = (WORLD, 0)


class DeadlockError(AssertionError):
    """Nothing is ready and no timer is set, but the simulation has not ended."""


class StepLimitError(AssertionError):
    """The simulation does not make progress."""


class SimTask(asyncio.Task[Any]):
    """A task whose hash does not depend on its address in memory."""

    def __init__(self, loop: Any, coro: Any, **named: Any) -> None:
        self._number: int = next(loop.numbers)
        super().__init__(coro, loop=loop, **named)

    def __hash__(self) -> int:
        return self._number


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is its number, as in `SimTask`."""

    def __init__(self, loop: SimLoop) -> None:
        self._number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


def _nothing() -> None:
    """The replacement of a cancelled callback."""


class SimHandle(asyncio.TimerHandle):
    """A callback of a node, to be called now or at a time; the loop requires no more of it."""

    __slots__ = ("life", "node")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        # As in the base class, without the checks of the loop: there are a million of these.
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
            # References are dropped as soon as possible; `BaseEventLoop` would count it, too.
            self._callback, self._args = _nothing, ()


class SimLoop(asyncio.BaseEventLoop):
    """Runs callbacks of all nodes in one thread with virtual time. The same seed gives the same run."""

    _closed: bool
    _stopping: bool

    def __init__(self, rng: random.Random, *, most_steps: int = MAX_STEPS, step_seconds: float = 0.0) -> None:
        """Each step takes `step_seconds`; with 0, a loop that polls without waiting, or for less than the resolution of
        a float, hangs.
        """
        super().__init__()
        self._step_seconds = step_seconds
        self._random = rng
        self._now = 0.0
        self._queues: dict[SimNode, deque[SimHandle]] = {}
        """Ready callbacks, by node."""
        self._timers: list[tuple[float, int, SimHandle]] = []
        """A heap of timers, by time and by the order of their creation."""
        self._set_timers = count()
        self._steps = 0
        self._most_steps = most_steps
        self._steps_before = 0
        """Number of steps up to the last idle moment."""
        self._digest = 0
        self._stamped, self._stamp = -1.0, b""
        """The time in the digest, and its value."""
        self._kept: list[object] = []
        self.frozen: set[SimNode] = set()
        """Paused machines: their events wait, as with SIGSTOP."""
        self.network: Any = None
        self.set_exception_handler(self._unhandled)
        self.set_task_factory(SimTask)
        self.numbers = count()
        """Counter for the hashes of tasks and futures."""
        self.unhandled: list[dict[str, Any]] = []
        """Uncaught exceptions of callbacks and tasks; a run with any of them has failed."""

    def time(self) -> float:
        """Return virtual seconds since the start."""
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        """Return a hash seed that makes the order of sets equal in each run."""
        return SimFuture(self)

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def digest(self) -> int:
        """Return a digest that is equal for equal runs: the order and times of all steps."""
        return self._digest

    def keep(self, thing: object) -> None:
        """Keep the objects of a dead node, so that garbage collection does not run its `finally` blocks."""
        self._kept.append(thing)

    def keep_tasks(self) -> None:
        """Keep all tasks: the objects of a dying machine may be the only other reference."""
        self._kept.extend(asyncio.all_tasks(self))

    def call_in(
        self, node: SimNode, delay: float, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Schedule a callback of a node, from any node."""
        return self.call_at(self._now + delay, callback, *arguments, context=node.context)

    # -- the base loop without threads, sockets and debug mode -------------------------

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
        """Do nothing: there is no other thread."""
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
        """Run one step after another, until the loop is stopped."""
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
        """`randrange` without validation."""
        draw, bits = self._random.getrandbits, most.bit_length()
        number = draw(bits)
        while number >= most:
            number = draw(bits)
        return number

    def _step(self, node: SimNode) -> None:
        """Run the next callback of a node."""
        queue = self._queues[node]
        handle = queue.popleft()
        if not queue:
            del self._queues[node]
        steps = self._steps = self._steps + 1
        self._now += self._step_seconds
        if steps > self._most_steps:
            raise StepLimitError(f"{steps} steps at {self._now:.3f} virtual seconds")
        if steps - self._steps_before > MAX_STEPS_AT_ONCE:
            raise StepLimitError(f"{node.name} is busy without end at {self._now:.3f} virtual seconds: {handle!r}")
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
        """Move the due timers into the nodes' queues."""
        timers, now = self._timers, self._now
        while timers and (timers[0][0] <= now or timers[0][2]._cancelled):
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self._enqueue(handle)

    def _jump(self) -> None:
        """Advance the time to the next timer, since nothing is ready."""
        if not self._timers:
            if self._stopping:
                return
            raise DeadlockError(f"no event is left at {self._now:.3f} virtual seconds")
        self._now = max(self._now, self._timers[0][0])
        self._steps_before = self._steps

    def _write_to_self(self) -> None:
        """Do nothing: no other thread can wake the loop."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there is no selector."""

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
            raise NotSimulatedError("connections of a simulation have no TLS, and require a host and a port")
        return await self.network.connect(protocol_factory, str(host), int(port))

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Return the address: names are not resolved, and an unknown address fails when connecting."""
        return [(*TCP, "", (str(host), int(port or 0)))]

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Do nothing: no signals are sent."""

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
            except Exception as error:  # noqa: BLE001 - raised to the awaiting caller
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
"""The world that ended last, whose results are still being examined."""
MAX_AWAITS = 20
"""Maximum number of steps in the `finally` blocks of one task."""


def run(main: Callable[[SimLoop], Any], seed: int, *, most_steps: int = MAX_STEPS, step_seconds: float = 0.0) -> Any:
    """Run `await main(loop)` to its end with virtual time."""
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
    """End the world: pending callbacks are dropped silently."""
    task: Any
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False
        loop.keep(task)
    loop._queues.clear()
    loop._timers.clear()
    loop.close()
    FORMER.append(loop)


def bury(loop: SimLoop) -> None:
    """Release a world. Its `finally` blocks run now, without effect: otherwise they would run during another world."""
    # The world's machine outlives every world, and its open files would keep each of them.
    WORLD.on_kill.clear()
    for task in asyncio.all_tasks(loop):
        work: Any = task.get_coro()
        for _ in range(MAX_AWAITS):
            # Raises if it awaits again.
            with suppress(BaseException):
                work.close()
                break
