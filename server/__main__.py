"""`barnabas start`: one broker as a process. Signals, log output and the event loop are chosen here."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from .. import __version__
from ..protocol.native import native
from ..protocol.room_logger import room_logger
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

if TYPE_CHECKING:
    from .broker import BrokerServer
    from .config.broker_config import BrokerConfig

logger = room_logger("broker")

END_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Each asks for a clean end: of a service, at a keyboard. SIGHUP has certificates read again."""
DEFAULT_LOG = LogOutput()


class Companion(Protocol):
    """What runs beside the broker in its process, for as long as that."""

    async def start(self, server: BrokerServer) -> str:
        """Begin, once clients are served; what is printed of it."""
        ...

    async def stop(self) -> None:
        """End, before the broker does; also after a start that failed, or that never was."""
        ...


def run(
    config: BrokerConfig,
    topics: Mapping[str, int] | None = None,
    log: LogOutput = DEFAULT_LOG,
    companion: Companion | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, then shut down cleanly; returns the process's exit status."""
    log.begin()
    raise_open_files()
    keep_freed_memory()
    preempt_nobody()
    loop = event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(config, topics or {}, loop, companion))
    finally:
        loop.close()


async def _serve(
    config: BrokerConfig, topics: Mapping[str, int], loop: asyncio.AbstractEventLoop, companion: Companion | None
) -> int:
    from .broker import BrokerServer

    stop = asyncio.Event()
    for number in END_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    for notice in config.notices:
        logger.warning("%s", notice)
    ports = replace(
        host_ports(loop, cleaning_work(config.log_cleaner_worker, loop)), collect_new=partial(gc.collect, 1)
    )
    server = BrokerServer(config, ports, loop)
    code = "compiled code" if native is not None else "no compiled code"
    logger.info("Barnabas %s starts on Python %s with %s", __version__, sys.version.partition(" ")[0], code)
    began = time.perf_counter()
    try:
        await server.start()
        loop.add_signal_handler(signal.SIGHUP, server.state.security.reload)
        for name, partitions in topics.items():
            await server.create_topic(name, partitions, {}, exist_ok=True)
        beside = None if companion is None else await companion.start(server)
    except Exception:
        if companion is not None:
            await companion.stop()
        await server.stop()
        raise
    # What exists now stays: modules, configuration, logs. Without this the collector would go through all of it again
    # and again, for milliseconds in which nobody is answered. What comes to stay later, offsets of groups for one, is
    # not gone through so often either, and while much comes to stay, as requests that wait do, the collector goes
    # through it in small portions, a tenth of a millisecond each: with the usual threshold it is half of one and more.
    # Requests are meant to leave no circles behind; those of one that did are found among the last few hundred objects.
    # All there is, a third of a second of it with tens of thousands of members, is gone through when a quarter more has
    # come to stay, and then at most once in 28 million objects or in a million requests of members (see `turns.py`).
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
    failed = loop.create_task(server.failed.wait())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait([failed, stopping], return_when=asyncio.FIRST_COMPLETED)
    logger.info("shutting down")
    if companion is not None:
        await companion.stop()
    await server.stop()
    for task in (failed, stopping):
        task.cancel()
    return 1 if server.failed.is_set() else 0


def _tell_start(server: BrokerServer, seconds: float) -> None:
    """What was found on the disks, and where the broker can be reached."""
    held = server.state.log_manager.held
    for log_dir in held.online_dirs:
        how = "after a clean stop" if log_dir.was_clean_shutdown else "recovered: it is new or had no clean stop"
        logger.info("%s: %d logs, %s", log_dir.path, len(list(held.held_by(log_dir))), how)
    for listener in server.listeners:
        where = f"{listener.host or 'all interfaces'}:{listener.port}"
        logger.info("%s listens on %s (%s)", listener.name, where, listener.security_protocol)
    logger.info("started in %.3f s", seconds)


def main(arguments: list[str] | None = None) -> int:
    """`python -m barnabas.server [server.properties]`."""
    from .config.broker_config import BrokerConfig

    arguments = sys.argv[1:] if arguments is None else arguments
    return run(BrokerConfig.from_file(arguments[0]) if arguments else BrokerConfig())


if __name__ == "__main__":
    sys.exit(main())
