"""The real world, out of reach of a thread while it simulates: clocks tell simulated time, what blocks is refused.

What is shut is what Python code reaches by name: `time`, chance, `socket`, threads. Code in C goes past all of it, as
`datetime.now()` does, and the threads of librdkafka, and so does who took a name with him before (`from time import
time`). Other threads of the process see nothing of this, but for the generator that `random`'s functions share.
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
MOST_LOOKS = 1_000_000
"""So often one step may look at a clock that stands still meanwhile."""

_TURN = threading.Lock()
_INSTEAD: dict[tuple[int, Any, str], Callable[..., Any]] = {}
"""What the thread that simulates has in the place of a name of an owner."""


class NotSimulatedError(NotImplementedError):
    """Code of a scenario reached for the real world, by what blocks, threads, or sockets past asyncio.

    Or it asked the loop for what there is none of here: TLS, pipes, processes.
    """


def asked_for_seed() -> int | None:
    """The one seed to play, if the environment names one. Raises ValueError."""
    text = os.environ.get(SEED_VARIABLE)
    return int(text) if text else None


def hashes_vary() -> bool:
    """Whether sets of texts are in another order in each process."""
    return os.environ.get("PYTHONHASHSEED", "random") == "random"


class SimClock:
    """Simulated time for code that does not ask its loop."""

    def __init__(self, loop_time: Callable[[], float], steps: Callable[[], int], start_ms: int) -> None:
        self._loop_time = loop_time
        self._steps = steps
        self._start = start_ms / 1000
        self._step = -1
        self._looks = 0

    def elapsed(self) -> float:
        """Seconds since the start. Raises NotSimulatedError to whoever waits for it to move without an await."""
        step = self._steps()
        if step != self._step:
            self._step, self._looks = step, 0
        self._looks += 1
        if self._looks > MOST_LOOKS:
            raise NotSimulatedError("the clock stands still while nothing is awaited: a loop waits for it in vain")
        return self._loop_time()

    def wall(self) -> float:
        """Seconds since 1970."""
        return self._start + self.elapsed()


@contextmanager
def out_of_reach(
    clock: SimClock, chance: random.Random, refused: Callable[[NotSimulatedError], None]
) -> Iterator[None]:
    """Until the `with` ends this thread has simulated clocks and seeded chance, and is refused what blocks.

    `refused` hears of each refusal, which whoever meets it may swallow. Raises RuntimeError where another thread
    simulates.
    """
    if not _TURN.acquire(blocking=False):
        raise RuntimeError("another thread of this process simulates: one can at a time")

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
    """What stands in the place of which name of which owner."""

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
        "only asyncio's connections are, between brokers and programs of the simulation. Blocking clients, and those "
        "with threads of their own, need barnabas.testing"
    )
    simulated: list[tuple[Any, str, Callable[..., Any]]] = [
        (time, "time", clock.wall),
        (time, "time_ns", lambda: int(clock.wall() * 1e9)),
        (time, "sleep", refusal("time.sleep", "it blocks everybody; await asyncio.sleep(…)")),
        *((time, name, clock.elapsed) for name in ("monotonic", "perf_counter")),
        *((time, f"{name}_ns", lambda: int(clock.elapsed() * 1e9)) for name in ("monotonic", "perf_counter")),
        (os, "urandom", chance.randbytes),
        (random, "_urandom", chance.randbytes),
        (random.Random, "seed", seed),
        (socket.socket, "connect", refusal("a socket's connect", only_asyncio)),
        (socket.socket, "connect_ex", refusal("a socket's connect", only_asyncio)),
        (socket.socket, "bind", refusal("a socket's bind", only_asyncio)),
        (socket, "getaddrinfo", refusal("looking up a host", only_asyncio)),
        (threading.Thread, "start", refusal("a thread", "asyncio.to_thread(…) is, for what does not block")),
    ]
    if (accumulator := sys.modules.get("aiokafka.producer.message_accumulator")) is not None:
        simulated.append((accumulator.BatchBuilder, "append", _stamped(accumulator.BatchBuilder.append, clock)))
    return simulated


def _stamped(append: Callable[..., Any], clock: SimClock) -> Callable[..., Any]:
    """aiokafka's way into a batch: what has no timestamp gets it here, and not in C from the real clock."""

    def stamped(builder: Any, *, timestamp: int | None, **record: Any) -> Any:
        return append(builder, timestamp=int(clock.wall() * 1000) if timestamp is None else timestamp, **record)

    return stamped


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Until the `with` ends this thread has a function in the place of another.

    Who takes the name with him meanwhile, as a module does that is imported late, has the real one afterwards, and in
    the next simulation that one's.
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
    """Garbage is collected when the loop says so, which is at the same steps in each run, and not before."""
    enabled = gc.isenabled()
    # What was there before is no garbage of a simulation.
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
