"""The production implementation of the ports: threads, wall clock, operating-system randomness and disk."""

from __future__ import annotations

import asyncio
import ipaddress
import mmap
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
from pathlib import Path
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
"""A start writes a few hundred kilobytes: indexes, producer snapshots, metadata. Deleting topics writes less."""
KEPT_BYTES = 8 << 20
"""Freed memory that the process keeps for the next request: some batches of the default `max.message.bytes`, opened."""
CGROUPS_OF_THIS_PROCESS = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
NO_MEMORY_LIMIT = 1 << 60
"""Version 1 of control groups has a number above this where there is no limit."""
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
        """Sync these files; return False, and do nothing, if it is busy or if a file needs its own way of syncing."""
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
        """Wait for the running round; its callback is still called."""
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
        while self._syncers:  # each once, because the system soon reuses the numbers of its descriptors
            _, syncer = self._syncers.popitem()
            syncer.close()
        for executor in self._lanes.values():
            executor.shutdown(wait=True)

    def _syncer(self, lane: str) -> Syncer | None:
        """Return the syncer of a lane; None without free handles, or if the loop cannot watch a descriptor."""
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
    """Sync the data of files on this thread; return the seconds that this took."""
    began = time.perf_counter()
    for file in files:
        file.fdatasync()
    return time.perf_counter() - began


def token_bytes(count: int) -> bytes:
    """Return secret random bytes."""
    return secrets.token_bytes(count)


def now_ms() -> int:
    """Wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


TCP_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"


def is_own_user(peer: tuple[str, int], own: tuple[str, int]) -> bool:
    """Return whether the other end of a TCP connection belongs to this process's user, to root or to another machine.

    Linux lists the sockets of this machine with their owners. A socket that its process has closed already has no owner
    and is not trusted.
    """
    if not (ipaddress.ip_address(peer[0]).is_loopback or peer[0] == own[0]):
        return True
    theirs, ours = _socket_names(peer), _socket_names(own)
    for table in TCP_TABLES:
        with suppress(OSError), Path(table).open() as lines:
            for line in lines:
                _, local, remote, state, _, _, _, owner, _, inode, *_ = line.split()
                if local in theirs and remote in ours:
                    # A socket without a process is listed with owner 0 and inode 0.
                    return state == _ESTABLISHED and inode != "0" and int(owner) in (os.geteuid(), 0)
    return False


def _socket_names(address: tuple[str, int]) -> set[str]:
    """Return an address in the form of Linux' tables: words of four bytes in native byte order, then the port."""
    found = ipaddress.ip_address(address[0])
    packed = [found.packed]
    if found.version == 4:
        packed.append(bytes(10) + b"\xff\xff" + found.packed)
    names = set()
    for one in packed:
        words = [int.from_bytes(one[at : at + 4], sys.byteorder) for at in range(0, len(one), 4)]
        names.add("".join(f"{word:08X}" for word in words) + f":{address[1]:04X}")
    return names


def open_files() -> int | None:
    """Return the limit for open files and sockets of this process."""
    if resource is None:
        return None
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def raise_open_files() -> None:
    """Raise the limit of open files and sockets of this process to the maximum: the usual 1024 are few for a broker."""
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Have the C library keep freed blocks of megabytes, up to `KEPT_BYTES`, instead of returning each to the kernel.

    The plain records of a compressed batch and the answer to a fetch live for a millisecond. glibc maps such a block
    again each time, and the page faults then cost more than the decompression. Other C libraries are not affected.
    """
    mallopt = _of_c_library("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_ARENA_MAX, ARENAS)


def return_freed_memory() -> None:
    """Return the memory that a start has freed, about a megabyte, to the kernel; it would be kept from now on."""
    trim = _of_c_library("malloc_trim")
    if trim is not None:
        trim(0)


def map_memory(size: int) -> mmap.mmap:
    """Memory of `size` bytes whose pages the kernel supplies at the first write, and frees with the object.

    Raises MemoryError that names the size.
    """
    try:
        if hasattr(mmap, "MAP_ANONYMOUS"):
            # Private, since shared anonymous memory counts as a file in tmpfs.
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return mmap.mmap(-1, size)
    except OSError as error:
        raise MemoryError(f"cannot allocate memory for a request of {size} bytes: {error.strerror}") from error


def memory_limit() -> int | None:
    """Return the memory limit of this process's control group and its parents, the smallest; None without a limit.

    Version 2 has it in `memory.max`, version 1 in `memory.limit_in_bytes`, where a number of exabytes means no limit.
    """
    try:
        entries = CGROUPS_OF_THIS_PROCESS.read_text().splitlines()
    except OSError:
        return None
    limits = []
    for entry in entries:
        _, controllers, path = entry.split(":", 2)
        if not controllers:
            root, name = CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        # In a container the path may be that of the host, while the container's own group is at the root.
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):
                limits.append(int((folder / name).read_text()))
            if folder == root:
                break
    smallest = min(limits, default=NO_MEMORY_LIMIT)
    return None if smallest >= NO_MEMORY_LIMIT else smallest


def _of_c_library(name: str) -> Callable[..., int] | None:
    """Return a function of glibc; None or a function without effect with other C libraries."""
    compiled: Callable[..., int] | None = getattr(native, name, None)
    if compiled is not None or sys.platform != "linux":
        return compiled
    import ctypes

    return getattr(ctypes.CDLL(None), name, None)


def preempt_nobody() -> None:
    """Do not preempt the running process of a processor when data arrives (Linux's SCHED_BATCH).

    A socket becomes readable with the first segments of a request. A broker that preempted the client there would read
    a piece, wait for the rest, and find its caches cold each time. If all processors are busy, it now runs later and
    reads more per call; a free processor is used as quickly as before. Threads and processes that are started later
    inherit the policy. A policy that an operator has chosen is kept.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def host_ports(loop: asyncio.AbstractEventLoop, cleaning: CleaningWork) -> Ports:
    """Return the ports of a broker that runs on this machine, on `loop`, and has its logs cleaned by `cleaning`."""
    return Ports(
        filesystem=OsFileSystem(),
        now_ms=now_ms,
        random=random.Random(secrets.randbits(64)),
        token_bytes=token_bytes,
        work=ThreadWork(loop),
        cleaning=cleaning,
        machine_name=socket.gethostname(),
        open_files=open_files,
        memory_limit=memory_limit(),
        allocate=map_memory,
        release_memory=return_freed_memory,
        is_own_user=is_own_user,
        stopwatch=time.perf_counter if native is None else native.stopwatch,
        lock=threading.Lock,
        reserve_bytes=RESERVE_BYTES,
    )


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop: uvloop's where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
