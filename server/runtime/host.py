"""The real world behind the ports: threads, wall clock, operating-system randomness and disk."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TypeVar

from ...protocol.native import native
from ...storage.filesystem import File, OsFile, OsFileSystem
from .ports import CleaningWork, Ports, Synced

resource: ModuleType | None
try:
    import resource
except ImportError:
    # Windows sets no such limit.
    resource = None

T = TypeVar("T")

RESERVE_BYTES = 8 << 20
"""A start writes some hundred kilobytes: indexes, producer snapshots, who leads what. Deleting topics writes less."""
KEPT_BYTES = 8 << 20
"""Freed memory that the process keeps for the next request: some batches of the default `max.message.bytes`, opened."""
ARENAS = 2
"""Heaps of the C library, which gives each thread one of its own: a broker's threads take turns, and need not."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt(3)."""


class Syncer:
    """Syncs files on a thread that needs no interpreter, where code is compiled. Loop-thread only.

    A thread of Python's waits for the interpreter when it has waited for the disk, and the loop then waits for it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError without handles or threads, NotImplementedError on a loop that watches no descriptors."""
        self._loop = loop
        self._done: Synced | None = None
        self._woken, self._wake = os.pipe()
        try:
            os.set_blocking(self._woken, False)
            os.set_blocking(self._wake, False)
            loop.add_reader(self._woken, self._ended)
            self._begin, self._end, self._close = native.open_syncer(self._wake)
        except BaseException:
            self._close_pipe()
            raise

    def begin(self, files: Sequence[File], done: Synced) -> bool:
        """Sync these; false, and nothing is done, while it is busy or where only the file itself knows how."""
        if self._done is not None:
            return False
        try:
            descriptors = [file.fileno() for file in files if type(file) is OsFile]
        except OSError:
            return False
        if len(descriptors) < len(files):
            return False
        self._begin(descriptors)
        self._done = done
        return True

    def close(self) -> None:
        """Wait for what is under way; whoever waits for that is still told."""
        self._close()
        self._close_pipe()
        if self._done is not None:
            self._loop.call_soon(self._tell)

    def _ended(self) -> None:
        os.read(self._woken, 1)
        self._tell()

    def _tell(self) -> None:
        done, self._done = self._done, None
        seconds, number = self._end()
        if done is not None:
            done(*((None, OSError(number, os.strerror(number))) if number else (seconds, None)))

    def _close_pipe(self) -> None:
        with suppress(NotImplementedError):
            self._loop.remove_reader(self._woken)
        os.close(self._woken)
        os.close(self._wake)


class ThreadWork:
    """`Work` on one thread per lane, started at the lane's first job.

    `submit`, `run`, `sync` and `close` belong to the loop's thread; `done` callbacks run there, too.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lanes: dict[str, ThreadPoolExecutor] = {}
        self._syncers: dict[str, Syncer] = {}
        self._closed = False

    def submit(self, lane: str, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        def work() -> None:
            result, error = None, None
            try:
                result = job()
            except BaseException as caught:  # noqa: BLE001 - handed to `done`, whose owner decides
                error = caught
            self._loop.call_soon_threadsafe(done, result, error)

        self._executor(lane).submit(work)

    async def run(self, lane: str, job: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._executor(lane), job)

    def sync(self, lane: str, files: Sequence[File], done: Synced) -> None:
        syncer = self._syncer(lane) if native is not None else None
        if syncer is None or not syncer.begin(files, done):
            self.submit(lane, partial(sync_here, files), done)

    def close(self) -> None:
        self._closed = True
        while self._syncers:  # each once: the numbers of its descriptors are soon those of others
            _, syncer = self._syncers.popitem()
            syncer.close()
        for executor in self._lanes.values():
            executor.shutdown(wait=True)

    def _syncer(self, lane: str) -> Syncer | None:
        """None while there are no handles for it, or where the loop cannot be told."""
        syncer = self._syncers.get(lane)
        if syncer is None and not self._closed:
            with suppress(OSError, NotImplementedError):
                syncer = self._syncers[lane] = Syncer(self._loop)
        return syncer

    def _executor(self, lane: str) -> ThreadPoolExecutor:
        if self._closed:
            raise RuntimeError("the work lanes are closed")
        executor = self._lanes.get(lane)
        if executor is None:
            executor = self._lanes[lane] = ThreadPoolExecutor(1, thread_name_prefix=lane)
        return executor


def sync_here(files: Sequence[File]) -> float:
    """Sync the data of these on this thread; how many seconds that took."""
    began = time.perf_counter()
    for file in files:
        file.fdatasync()
    return time.perf_counter() - began


def token_bytes(count: int) -> bytes:
    """Bytes that nobody can guess."""
    return secrets.token_bytes(count)


def now_ms() -> int:
    """Wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def open_files() -> int | None:
    """How many files and sockets this process may have open."""
    if resource is None:
        return None
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def raise_open_files() -> None:
    """Let this process have as many files and sockets open as it may ask for: the usual 1024 are few for a broker."""
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Have the C library keep freed blocks of megabytes, up to `KEPT_BYTES`, instead of returning each to the kernel.

    The plain records of a compressed batch and the answer to a fetch live for a millisecond. glibc maps such a block
    anew each time, and the page faults then cost more than the decompression. Other C libraries are left alone.
    """
    mallopt = _of_c_library("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_ARENA_MAX, ARENAS)


def return_freed_memory() -> None:
    """Give back to the kernel what a start has freed, a megabyte of it, which would be kept from now on."""
    trim = _of_c_library("malloc_trim")
    if trim is not None:
        trim(0)


def _of_c_library(name: str) -> Callable[..., int] | None:
    """A function of glibc; None, or one that does nothing, where there is another C library."""
    compiled: Callable[..., int] | None = getattr(native, name, None)
    if compiled is not None or sys.platform != "linux":
        return compiled
    import ctypes

    return getattr(ctypes.CDLL(None), name, None)


def preempt_nobody() -> None:
    """Do not take a processor from whoever runs on it only because something has arrived (Linux's SCHED_BATCH).

    A socket becomes readable with the first segments of a request. A broker that stopped the client there would read a
    piece, wait for the rest, and find its caches cold each time. Where all processors are busy it now comes later and
    reads more at once; a free one is taken as soon as ever. Threads and processes that are started later do likewise.
    What an operator has chosen for this process stays.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def host_ports(loop: asyncio.AbstractEventLoop, cleaning: CleaningWork) -> Ports:
    """The ports of a broker that runs on this machine, on `loop`, and has its logs cleaned by `cleaning`."""
    return Ports(
        filesystem=OsFileSystem(),
        now_ms=now_ms,
        random=random.Random(secrets.randbits(64)),
        token_bytes=token_bytes,
        work=ThreadWork(loop),
        cleaning=cleaning,
        machine_name=socket.gethostname(),
        open_files=open_files,
        stopwatch=time.perf_counter if native is None else native.stopwatch,
        lock=threading.Lock,
        reserve_bytes=RESERVE_BYTES,
    )


def event_loop() -> asyncio.AbstractEventLoop:
    """A new loop: uvloop's where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
