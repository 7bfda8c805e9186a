"""Isolation of a simulating thread from the real world: clocks return simulated time, blocking calls are rejected.

Isolated are the names that Python code uses: `time`, random numbers, `socket`, threads. C code bypasses this, as
`datetime.now()` and the threads of librdkafka do, and so do names that were imported before (`from time import time`).
Other threads of the process are unaffected, except for the shared generator of `random`'s functions.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

SEED_VARIABLE = "BARNABAS_SEED"
TCP = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
MAX_LOOKS = 1_000_000
"""Maximum number of reads of the clock in one step, during which it does not advance."""

_TURN = threading.Lock()
_INSTEAD: dict[tuple[int, Any, str], Callable[..., Any]] = {}
"""The replacement of a name of a module for the simulating thread."""


class NotSimulatedError(NotImplementedError):
    """A scenario used the real world: blocking calls, threads, or sockets without asyncio.

    Or a function of the loop that is not simulated: TLS, pipes, processes.
    """


def asked_for_seed() -> int | None:
    """Return the only seed to run, if the environment sets one. Raises ValueError."""
    text = os.environ.get(SEED_VARIABLE)
    return int(text) if text else None


def hashes_vary() -> bool:
    """Return whether the order of sets of strings differs between processes."""
    return os.environ.get("PYTHONHASHSEED", "random") == "random"


class SimClock:
    """Simulated time for code without a loop."""

    def __init__(self, loop_time: Callable[[], float], steps: Callable[[], int], start_ms: int) -> None:
        self._loop_time = loop_time
        self._steps = steps
        self._start = start_ms / 1000
        self._step = -1
        self._looks = 0

    def elapsed(self) -> float:
        """Return seconds since the start. Raises NotSimulatedError for a loop that waits for it to advance without an
        await.
        """
        step = self._steps()
        if step != self._step:
            self._step, self._looks = step, 0
        self._looks += 1
        if self._looks > MAX_LOOKS:
            raise NotSimulatedError("the clock does not advance without an await: this loop would wait forever")
        return self._loop_time()

    def wall(self) -> float:
        """Return seconds since 1970."""
        return self._start + self.elapsed()


@contextmanager
def out_of_reach(
    clock: SimClock, chance: random.Random, refused: Callable[[NotSimulatedError], None]
) -> Iterator[None]:
    """Give this thread simulated clocks and seeded random numbers until the end of the `with` block, and reject
    blocking calls.

    `refused` is called for each rejection, whose exception the caller may swallow. Raises RuntimeError if another
    thread simulates.
    """
    if not _TURN.acquire(blocking=False):
        raise RuntimeError("another thread of this process is simulating; only one simulation runs per process")

    with ExitStack() as undo:
        undo.callback(_TURN.release)
        undo.callback(random.setstate, random.getstate())
        random.seed(chance.random())
        for owner, name, function in _simulated(clock, chance, refused):
            undo.enter_context(_replaced(owner, name, function))
        yield


def _simulated(
    clock: SimClock, chance: random.Random, refused: Callable[[NotSimulatedError], None]
) -> list[tuple[Any, str, Callable[..., Any]]]:
    """Return the replacements by module and name."""

    def refusal(what: str, instead: str) -> Callable[..., NoReturn]:
        def refuse(*_: object, **__: object) -> NoReturn:
            error = NotSimulatedError(f"{what} is not simulated: {instead}")
            refused(error)
            raise error

        return refuse

    real_seed = random.Random.seed

    def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
        real_seed(generator, chance.getrandbits(128) if a is None else a, version)

    only_asyncio = (
        "only asyncio connections between brokers and programs of the simulation are. Blocking clients, and clients "
        "with threads, require barnabas.testing"
    )
    simulated: list[tuple[Any, str, Callable[..., Any]]] = [
        (time, "time", clock.wall),
        (time, "time_ns", lambda: int(clock.wall() * 1e9)),
        (time, "sleep", refusal("time.sleep", "it blocks the whole simulation; await asyncio.sleep(…)")),
        *((time, name, clock.elapsed) for name in ("monotonic", "perf_counter")),
        *((time, f"{name}_ns", lambda: int(clock.elapsed() * 1e9)) for name in ("monotonic", "perf_counter")),
        (os, "urandom", chance.randbytes),
        (random, "_urandom", chance.randbytes),
        (random.Random, "seed", seed),
        (socket.socket, "connect", refusal("a socket's connect", only_asyncio)),
        (socket.socket, "connect_ex", refusal("a socket's connect", only_asyncio)),
        (socket.socket, "bind", refusal("a socket's bind", only_asyncio)),
        (socket, "getaddrinfo", refusal("looking up a host", only_asyncio)),
        (threading.Thread, "start", refusal("a thread", "asyncio.to_thread(…) is, for functions that do not block")),
    ]
    if (accumulator := sys.modules.get("aiokafka.producer.message_accumulator")) is not None:
        simulated.append((accumulator.BatchBuilder, "append", _stamped(accumulator.BatchBuilder.append, clock)))
    return simulated


def _stamped(append: Callable[..., Any], clock: SimClock) -> Callable[..., Any]:
    """Replace aiokafka's batch builder: missing timestamps are set here, instead of in C from the real clock."""

    def stamped(builder: Any, *, timestamp: int | None, **record: Any) -> Any:
        return append(builder, timestamp=int(clock.wall() * 1000) if timestamp is None else timestamp, **record)

    return stamped


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Replace a function until the end of the `with` block.

    Code that imports the name in that time, as a late import does, has the real function afterwards, and in the next
    simulation its replacement.
    """
    real, inherited = getattr(owner, name), name not in vars(owner)

    def either(*args: Any, **kwargs: Any) -> Any:
        return _INSTEAD.get((threading.get_ident(), owner, name), real)(*args, **kwargs)

    setattr(owner, name, either)
    mine = threading.get_ident(), owner, name
    _INSTEAD[mine] = function
    try:
        yield
    finally:
        del _INSTEAD[mine]
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, real)


@contextmanager
def garbage_by_the_step() -> Iterator[None]:
    """Collect garbage only when the loop does, at the same steps in each run."""
    enabled = gc.isenabled()
    # Older objects are not garbage of this simulation.
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
