"""`barnabas coordinator`: the metadata tree of a cluster, served by a process that is not a broker.

Whichever broker dies, the others can still agree. Signals, log output and the event loop are chosen here.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Sequence
from pathlib import Path

from ....common.error_description import describe_error
from ....common.room_logger import room_logger
from ....storage.filesystem import OsFileSystem
from ....storage.reserve import Reserve
from ...runtime.host import (
    RESERVE_BYTES,
    ThreadWork,
    event_loop,
    is_own_user,
    memory_limit,
    now_ms,
    open_files,
    raise_open_files,
)
from ...runtime.log_output import LogOutput
from ..embedded_store import EmbeddedStore
from ..metadata_store import STORE_LANE
from .tree_server import TreeServer

logger = room_logger("metadata")

STORE_FILE = "metadata.sqlite"
"""The name of the database, as in the first log directory of a broker."""
RESERVE_CHECK_SECONDS = 10.0
"""The interval at which the reserve on the disk is filled again."""


def run(folder: Path, addresses: Sequence[tuple[str, int]], log: LogOutput, *, owner_only: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; returns the process's exit status.

    With `owner_only` connections of other users of this machine are refused.
    Raises OSError (the folder or a port cannot be had), StoreUnavailableError (another process has the folder).
    """
    log.begin()
    raise_open_files()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    loop = event_loop()
    asyncio.set_event_loop(loop)
    try:
        reason = loop.run_until_complete(_serve(folder, addresses, loop, owner_only=owner_only))
    except BaseException as error:
        logger.error("the coordinator ended: %s", describe_error(error))
        raise
    finally:
        loop.close()
    logger.info("stopped cleanly after %s", reason)
    return 0


async def _serve(
    folder: Path, addresses: Sequence[tuple[str, int]], loop: asyncio.AbstractEventLoop, *, owner_only: bool
) -> str:
    """Serve until a signal; returns its name."""
    stop = asyncio.Event()
    reasons: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _end_by, stop, reasons, number.name)
    path, work = f"{folder}/{STORE_FILE}", ThreadWork(loop)
    reserve = Reserve(OsFileSystem(), f"{path}.reserve", RESERVE_BYTES)
    reserve.give_up()
    store = EmbeddedStore.open(path, now_ms=now_ms, work=work, reserve=reserve, keep_sessions=True)
    server = TreeServer(
        store.request_processor,
        addresses,
        loop,
        token_bytes=secrets.token_bytes,
        open_files=open_files,
        is_trusted=is_own_user if owner_only else lambda peer, own: True,
        memory_limit=memory_limit(),
    )
    try:
        await server.start()
        print(f"ready {server.bound}", flush=True)
        while not stop.is_set():
            await _keep_room(reserve, work)
            await asyncio.wait([loop.create_task(stop.wait())], timeout=RESERVE_CHECK_SECONDS)
        logger.info("shutting down because of %s", reasons[0])
    finally:
        await server.close()
        await store.close()
        work.close()
    return reasons[0]


def _end_by(stop: asyncio.Event, reasons: list[str], name: str) -> None:
    reasons.append(name)
    stop.set()


async def _keep_room(reserve: Reserve, work: ThreadWork) -> None:
    try:
        await work.run(STORE_LANE, reserve.fill)
    except OSError as error:
        logger.warning("the reserve file of the disk cannot be used: %s", error)
