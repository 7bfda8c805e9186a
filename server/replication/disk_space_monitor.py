"""The space on the disks of a broker: measured for metrics, and logged when a disk is full, low, or has room again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...common.room_logger import room_logger

if TYPE_CHECKING:
    from ...storage.filesystem import FileSystem
    from ...storage.log_manager import LogManager
    from ...storage.reserve import Reserve
    from ..config.broker_config import BrokerConfig
    from ..runtime.ports import Ports

logger = room_logger("storage")

MEASURE_SECONDS = 10.0
"""Interval of the measurements of all disks."""
FULL_BYTES = 1 << 20
"""A disk with fewer free bytes is full: a batch of the default `max.message.bytes` may not fit."""
FULL_SHARE = 64
"""A small disk is full below this fraction (1/n) of its size instead."""
ROOM_FACTOR = 2
"""A full disk has room again when its free bytes reach this multiple of the limit below which it is full. With equal
limits, a disk near them would log a line at each measurement."""
PERCENT = 100
UNKNOWN = "the free bytes are not known"


class DiskSpace(NamedTuple):
    """The space of the file system that holds a directory."""

    free_bytes: int
    """The bytes that the broker's user may still write."""
    total_bytes: int

    def __str__(self) -> str:
        return f"{self.free_bytes} of {self.total_bytes} bytes are free"

    @property
    def full_bytes(self) -> int:
        """The number of free bytes below which the disk is full."""
        return min(FULL_BYTES, self.total_bytes // FULL_SHARE)


class MetadataDirectory(NamedTuple):
    """The directory of the embedded metadata store, by default the first log directory."""

    path: str
    lane: str
    reserve: Reserve


class DiskSpaceMonitor:
    """The space on the disks of a broker. Owned by the broker and used on the loop's thread.

    Disks are measured on their lanes. A write that finds no space reports the directory (`on_no_space`), which costs
    nothing while there is space. Only changes are logged: a client repeats a failed append many times per second.
    """

    def __init__(
        self,
        log_manager: LogManager,
        config: BrokerConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        *,
        metadata: MetadataDirectory | None,
    ) -> None:
        """`metadata` is None for a broker without an embedded metadata store."""
        self.space: dict[str, DiskSpace] = {}
        """The last measurement by directory: the log directories, and the directory of the metadata."""
        self.full: dict[str, str] = {}
        """The directories without space, each with a description."""
        self._low: set[str] = set()
        """The directories below `log.dir.free.space.warning.percent`."""
        self._held = log_manager.held
        self._config = config
        self._ports = ports
        self._loop = loop
        self._due = 0.0
        """The loop time of the next measurement while no disk is full."""
        self._metadata = metadata

    def on_no_space(self, directory: str) -> None:
        """Report a write that failed for lack of space in a log directory."""
        if directory in self.full:
            return
        space = self.space.get(directory)
        if space is not None and space.free_bytes < space.full_bytes:
            self._set_full(directory, space)
            return
        # The last measurement is older than the write that failed. A busy disk may take seconds to be measured.
        self.full[directory] = UNKNOWN
        is_log_dir = any(log_dir.path == directory for log_dir in self._held.dirs)
        lane = directory if is_log_dir or self._metadata is None else self._metadata.lane
        measure = partial(_space, self._ports.filesystem, directory)
        try:
            self._ports.work.submit(lane, measure, lambda found, _: self._set_full(directory, found))
        except RuntimeError:  # the lanes are closed: the broker has stopped
            self._set_full(directory, None)

    def on_store_full(self) -> None:
        """Report a write to the embedded metadata store that failed for lack of space."""
        if self._metadata is not None:
            self.on_no_space(self._metadata.path)

    async def check(self) -> None:
        """Measure the disks if that is due: each `MEASURE_SECONDS`, and at each call while one of them is full."""
        now = self._loop.time()
        if not self.full and now < self._due:
            return
        self._due = now + MEASURE_SECONDS
        metadata = self._metadata
        measured = set()
        for log_dir in self._held.online_dirs:
            measured.add(log_dir.path)
            await self._measure(log_dir.path, log_dir.path, log_dir.use_reserve)
        if metadata is not None and all(log_dir.path != metadata.path for log_dir in self._held.dirs):
            measured.add(metadata.path)
            await self._measure(metadata.path, metadata.lane, lambda look: look(metadata.reserve))
        for directory in self.space.keys() - measured:
            # It is offline: nothing is written there any more.
            del self.space[directory]
            self.full.pop(directory, None)
            self._low.discard(directory)

    async def _measure(
        self,
        directory: str,
        lane: str,
        use_reserve: Callable[[Callable[[Reserve], tuple[DiskSpace, bool]]], tuple[DiskSpace, bool]],
    ) -> None:
        look = partial(_look, self._ports.filesystem, directory, is_full=directory in self.full)
        try:
            space, has_room = await self._ports.work.run(lane, partial(use_reserve, look))
        except OSError as error:
            # A disk that fails is found by its next write, which takes the directory offline.
            logger.debug("the space in %s cannot be measured: %s", directory, error)
            return
        self.space[directory] = space
        if directory in self.full:
            if has_room:
                del self.full[directory]
                logger.info("%s has room again: %s", directory, space)
            else:
                self.full[directory] = str(space)
        elif not has_room:
            self._set_full(directory, space)
        self._note_low(directory, space)

    def _set_full(self, directory: str, space: DiskSpace | None) -> None:
        described = UNKNOWN if space is None else str(space)
        if space is not None:
            self.space[directory] = space
        self.full[directory] = described
        logger.error(
            "%s is full: %s. Writes there fail with KAFKA_STORAGE_ERROR, and reads continue, until space is freed",
            directory,
            described,
        )

    def _note_low(self, directory: str, space: DiskSpace) -> None:
        percent = self._config.log_dir_free_space_warning_percent
        free = space.free_bytes * PERCENT
        if directory not in self._low and free < space.total_bytes * percent:
            self._low.add(directory)
            if directory not in self.full:
                logger.warning(
                    "%s is almost full: %s, less than log.dir.free.space.warning.percent=%d", directory, space, percent
                )
        elif directory in self._low and free >= space.total_bytes * (percent + 1):
            self._low.discard(directory)
            logger.info("%s has enough free space again: %s", directory, space)


def _space(fs: FileSystem, directory: str) -> DiskSpace:
    """Return the space of a disk. Blocks. Raises OSError."""
    return DiskSpace(fs.free_bytes(directory), fs.total_bytes(directory))


def _look(fs: FileSystem, directory: str, reserve: Reserve, *, is_full: bool) -> tuple[DiskSpace, bool]:
    """Return the space of a disk, and whether it has room. Blocks. Raises OSError."""
    space = _space(fs, directory)
    if not is_full:
        return space, space.free_bytes >= space.full_bytes
    needed = ROOM_FACTOR * space.full_bytes
    return space, space.free_bytes >= needed and reserve.can_grow(max(1, needed))
