"""`barnabas start`: one broker as a process. Signals, log output and the event loop are chosen here."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from .. import __version__
from ..common.error_description import describe_error
from ..common.room_logger import room_logger
from ..protocol.native import native
from .cleaning.cleaning_work import cleaning_work
from .runtime.host import (
    event_loop,
    host_ports,
    keep_freed_memory,
    preempt_nobody,
    raise_open_files,
    return_freed_memory,
)
from .runtime.log_output import LogOutput
from .runtime.service_notifier import ServiceNotifier

if TYPE_CHECKING:
    from .broker import BrokerServer
    from .config.broker_config import BrokerConfig

logger = room_logger("broker")

END_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Both request a clean shutdown: of a service, at a keyboard. SIGHUP reloads certificates, SIGUSR1 logs stacks."""
DEFAULT_LOG = LogOutput()


class Companion(Protocol):
    """A component that shares the broker's process, such as the console.

    A protocol, because the console is in `tools`, which the server must not import.
    """

    async def start(self, server: BrokerServer) -> str:
        """Start, once clients are served; return the line to print."""
        ...

    async def stop(self) -> None:
        """Stop, before the broker does; also after a start that failed or did not happen."""
        ...


def run(
    config: BrokerConfig,
    topics: Mapping[str, int] | None = None,
    log: LogOutput = DEFAULT_LOG,
    companion: Companion | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, then shut down cleanly; returns the process's exit status.

    The last line of the log names the reason of the end.
    """
    log.begin()
    raise_open_files()
    keep_freed_memory()
    preempt_nobody()
    loop = event_loop()
    asyncio.set_event_loop(loop)
    started = asyncio.Event()
    notifier = ServiceNotifier(loop, os.environ)
    try:
        return loop.run_until_complete(_serve(config, topics or {}, loop, companion, started, notifier))
    except BaseException as error:
        logger.error("the broker %s: %s", "ended" if started.is_set() else "did not start", describe_error(error))
        raise
    finally:
        notifier.close()
        loop.close()


async def _serve(
    config: BrokerConfig,
    topics: Mapping[str, int],
    loop: asyncio.AbstractEventLoop,
    companion: Companion | None,
    started: asyncio.Event,
    notifier: ServiceNotifier,
) -> int:
    """Serve; sets `started` once clients are served."""
    # Almost all objects of a start remain: modules, logs, metadata. With the usual thresholds the collector traverses
    # each of them several times, which takes a fifth of the start of a broker with ten thousand partitions. With these
    # it traverses each of them once, while it is young, and at most 50 000 objects of cycles wait to be freed.
    gc.set_threshold(50_000, 1000, 1000)
    from .broker import BrokerServer

    stop: asyncio.Future[signal.Signals] = loop.create_future()
    for number in END_SIGNALS:
        loop.add_signal_handler(number, _end_by, stop, number)
    # Unhandled, a SIGHUP in the middle of a long recovery would end the process without a word.
    loop.add_signal_handler(signal.SIGHUP, logger.warning, "SIGHUP is ignored until the broker has started")
    # Not a handler of the loop: stacks are needed most when a callback does not return to the loop. A thread logs them,
    # since the signal may interrupt the main thread in the middle of a write to the log.
    signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=_log_stacks, args=(loop,), daemon=True).start())
    for notice in config.startup_warnings:
        logger.warning("%s", notice)
    ports = replace(
        host_ports(loop, cleaning_work(config.log_cleaner_worker, loop)), collect_new=partial(gc.collect, 1)
    )
    server = BrokerServer(config, ports, loop)
    code = "compiled code" if native is not None else "no compiled code"
    logger.info("Barnabas %s starts on Python %s with %s", __version__, sys.version.partition(" ")[0], code)
    began = time.perf_counter()
    stop.add_done_callback(lambda _: server.give_up_start())
    try:
        await server.start()
        loop.add_signal_handler(signal.SIGHUP, server.state.security.reload)
        for name, partitions in topics.items():
            await server.create_topic(name, partitions, {}, exist_ok=True)
        beside = None if companion is None else await companion.start(server)
    except Exception:
        if companion is not None:
            await companion.stop()
        await server.stop(leave=not server.was_start_given_up)
        if not server.was_start_given_up:
            raise
        logger.info("stopped because of %s, before the start was complete", stop.result().name)
        return 0
    # Objects that exist now are permanent: modules, configuration, logs. Without `freeze` the collector would traverse
    # all of them again and again, for milliseconds without a response. The thresholds also limit the traversal of later
    # permanent objects, such as group offsets: while many objects are added, for example waiting requests, the
    # collector traverses the young ones in small portions of a tenth of a millisecond; with the usual threshold a
    # portion takes half a millisecond or more. Requests are not meant to leave reference cycles; a cycle from a request
    # is found among the last few hundred objects. A full collection, which takes a third of a second with tens of
    # thousands of members, runs when a quarter more objects exist, and at most once in 28 million objects or in a
    # million requests of members (see `loop_sharing.py`).
    gc.freeze()
    return_freed_memory()
    gc.set_threshold(200, 1, 70_000)
    _tell_start(server, time.perf_counter() - began)
    for listener in server.listeners:
        print(f"listening {listener.name}://{listener.advertised_host}:{listener.advertised_port}")
    if server.health is not None:
        print(f"health {server.health.url}")
    for url in server.metrics.urls if server.metrics is not None else ():
        print(f"metrics {url}")
    if beside is not None:
        print(beside)
    print(f"ready broker.id={server.state.broker_id} cluster.id={server.state.cluster_id}", flush=True)
    started.set()
    notifier.ready(f"serves clients as broker {server.state.broker_id}")
    failed = loop.create_task(server.failed.wait())
    ends: list[asyncio.Future[Any]] = [failed, stop]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    reason = stop.result().name if stop.done() else "a failure"
    logger.info("shutting down because of %s", reason)
    notifier.stopping()
    began = time.perf_counter()
    if companion is not None:
        await companion.stop()
    is_clean = await server.stop()
    failed.cancel()
    if server.failed.is_set():
        logger.error("the broker ended: %s", _failure(server))
        return 1
    seconds = time.perf_counter() - began
    if is_clean:
        logger.info("stopped cleanly in %.3f s after %s", seconds, reason)
    else:
        logger.error("stopped in %.3f s after %s, but not cleanly: see the errors above", seconds, reason)
    return 0


def _end_by(stop: asyncio.Future[signal.Signals], number: signal.Signals) -> None:
    if not stop.done():
        stop.set_result(number)


def _log_stacks(loop: asyncio.AbstractEventLoop) -> None:
    """Log the stack of each thread and of each task on the loop, one line per stack, with the innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            logger.info("stack of thread %s: %s", names.get(ident, ident), _calls(reversed(list(_outward(frame)))))
    tasks = asyncio.all_tasks(loop)
    for task in sorted(tasks, key=asyncio.Task.get_name):
        logger.info("stack of task %s: %s", task.get_name(), _calls(_inward(task.get_coro())))
    logger.info("%d threads and %d tasks in this dump", len(names) - 1, len(tasks))


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _inward(coroutine: Any) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine and of the coroutines that it awaits."""
    while coroutine is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(coroutine, f"{kind}_frame", None)
            if frame is not None:
                yield frame
        awaited = (getattr(coroutine, name, None) for name in ("cr_await", "gi_yieldfrom", "ag_await"))
        coroutine = next((one for one in awaited if one is not None), None)


def _calls(frames: Iterable[FrameType]) -> str:
    """Describe frames as `file:line function`, joined by arrows."""
    return " > ".join(
        f"{'/'.join(PurePath(frame.f_code.co_filename).parts[-2:])}:{frame.f_lineno} {frame.f_code.co_name}"
        for frame in frames
    )


def _failure(server: BrokerServer) -> str:
    """Return the reason why the broker cannot continue."""
    if server.failure is not None:
        return server.failure
    failures = (log_dir.failure for log_dir in server.state.log_manager.dirs)
    return f"no log directory is left: {'; '.join(str(failure) for failure in failures if failure is not None)}"


def _tell_start(server: BrokerServer, seconds: float) -> None:
    """Log the logs that were found, and the addresses of the broker."""
    held = server.state.log_manager.held
    for log_dir in held.online_dirs:
        if log_dir.is_new:
            logger.info("%s: new log directory", log_dir.path)
            continue
        how = "loaded after a clean stop" if log_dir.was_clean_shutdown else "recovered after an unclean stop"
        logger.info("%s: %d logs, %s", log_dir.path, len(list(held.held_by(log_dir))), how)
    for listener in server.listeners:
        where = f"{listener.host or 'all interfaces'}:{listener.port}"
        logger.info("%s listens on %s (%s)", listener.name, where, listener.security_protocol)
    logger.info("started in %.3f s", seconds)


def main(arguments: list[str] | None = None) -> int:
    """`python -m barnabas.server [server.properties]`."""
    from .config.broker_config import BrokerConfig

    arguments = sys.argv[1:] if arguments is None else arguments
    return run(BrokerConfig.from_file(arguments[0], os.environ) if arguments else BrokerConfig())


if __name__ == "__main__":
    sys.exit(main())
