"""Group commit: one fdatasync for all appends that arrived during the previous one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError
from ...storage.errors import NO_SPACE, FlushPostponedError, LogDirFailedError, LogFailedError, NoSpaceError
from ...storage.unsynced_files import FlushTask, run_together

if TYPE_CHECKING:
    from ...storage.log import Log
    from ..runtime.ports import Ports
    from .partition import Partition

logger = room_logger("replication")

NOTIFY_SECONDS_PER_TURN = 0.001
"""Time for the notification of partitions whose appends are on disk, which answers waiting requests immediately."""

LINGER_S = 0.025
"""Appends that may linger wait until this long after their last round. Their clients wait for seconds anyway, and each
fdatasync costs a millisecond of processor time, in the broker and in the kernel, and two thread switches that delay all
other requests."""
LATE_SECONDS = 2.0
"""The time by which the fault point `flush-late` delays a round of flushes."""
RETRY_SECONDS = 1.0
"""The delay before a flush is repeated that lacked disk space or file handles."""
FINISH_SECONDS = 30.0
"""The time for which a stop waits for appends that are not on disk yet."""
PARTITIONS_PER_FLUSH = 256
"""The most partitions of one round: the next round waits for its end, until which its handles are open."""

Flush = tuple["Partition", "Log", FlushTask]


class GroupCommit:
    """Rounds of flushes, one at a time per log directory, on its lane. Owned by the ReplicaManager; runs on the event
    loop."""

    def __init__(
        self,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        on_dir_failed: Callable[[str, BaseException], None],
        on_log_failed: Callable[[LogDirFailedError], None],
        on_no_space: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_no_space` is called with a directory each time that a flush lacks disk space; it logs the condition."""
        self._ports = ports
        self._loop = loop
        self._partitions_per_flush = min(PARTITIONS_PER_FLUSH, (ports.log_files or 2 * PARTITIONS_PER_FLUSH) // 2)
        self._on_dir_failed = on_dir_failed
        self._on_log_failed = on_log_failed
        self._on_no_space = on_no_space
        self.on_flushed: Callable[[float], None] | None = None
        """Called with the seconds that each round took, if it is set."""
        self._waiting: dict[str, dict[Partition, None]] = {}
        self._busy: set[str] = set()
        self._full: set[str] = set()
        """Directories whose last round lacked disk space, which `on_no_space` logs."""
        self._lingering: dict[Partition, None] = {}
        self._has_lingered: set[Partition] = set()
        """Partitions that have had appends that may linger, which are records of classic groups.

        The flush of one of these partitions may complete thousands of requests, so `_complete` ends the turn after it.
        They remain here until `forget`, because later flushes complete as many.
        """
        self._linger_until = 0.0
        self._ended: asyncio.Future[None] | None = None
        self._rounds: dict[str, asyncio.Future[None]] = {}
        """The rounds in progress, by directory, until their partitions are notified."""

    def request(self, partition: Partition, *, may_linger: bool = False) -> None:
        """Flush the records appended to `partition` so far; `partition.on_flushed` is called after it."""
        if may_linger and self._defer(partition):
            return
        directory = partition.log.directory
        waiting = self._waiting.get(directory)
        if waiting is None:
            waiting = self._waiting[directory] = {}
        elif partition in waiting:
            return
        self._lingering.pop(partition, None)
        waiting[partition] = None
        if directory not in self._busy:
            self._busy.add(directory)
            self._loop.call_soon(self._begin_round, directory)

    def forget(self, partition: Partition) -> None:
        """Stop flushing a partition."""
        self._has_lingered.discard(partition)
        self._lingering.pop(partition, None)
        for waiting in self._waiting.values():
            waiting.pop(partition, None)

    async def finish(self) -> None:
        """Wait until no append waits for the disk, so that a stopping broker acknowledges all committed records.

        Gives up after `FINISH_SECONDS`, because the disk may be full.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                while self._busy or self._lingering:
                    self._end_linger()
                    self._ended = self._loop.create_future()
                    await self._ended

    async def end(self) -> None:
        """Call `finish`, then begin no more rounds, and wait for the rounds in progress without a limit.

        The rounds use the files that are closed next, which flushes the remaining records.
        """
        await self.finish()
        self._waiting.clear()
        self._lingering.clear()
        while self._rounds:
            await asyncio.wait(list(self._rounds.values()))

    def _defer(self, partition: Partition) -> bool:
        """Defer the flush of a partition until `_linger_until`; return False if it must begin now.

        The first append after a quiet time does not wait, and begins the time in which later appends do.
        """
        self._has_lingered.add(partition)
        now = self._loop.time()
        if now >= self._linger_until and not self._lingering:
            self._linger_until = now + LINGER_S
            return False
        if not self._lingering:
            self._loop.call_at(self._linger_until, self._end_linger)
        self._lingering[partition] = None
        return True

    def _end_linger(self) -> None:
        lingered, self._lingering = self._lingering, {}
        if lingered:
            self._linger_until = self._loop.time() + LINGER_S
        for partition in lingered:
            self.request(partition)

    def _begin_round(self, directory: str) -> None:
        if self._ports.fault("flush-late"):
            self._loop.call_later(LATE_SECONDS, self._begin_round, directory)
            return
        try:
            flushes = self._begin_flushes(directory, self._waiting.get(directory, {}))
        except LogDirFailedError as error:
            self._fail(directory, error.cause)
        else:
            if flushes:
                self._run(directory, flushes)
            elif self._waiting.get(directory):
                if directory not in self._full:
                    logger.warning("%s: files could not be opened or written, retrying the flush", directory)
                self._loop.call_later(RETRY_SECONDS, self._begin_round, directory)
            else:
                self._end(directory)

    def _begin_flushes(self, directory: str, waiting: dict[Partition, None]) -> list[Flush]:
        """Begin one round for the waiting partitions; a partition that lacks space or handles keeps waiting.

        Raises LogDirFailedError.
        """
        flushes: list[Flush] = []
        self._full.discard(directory)
        for partition in list(waiting)[: self._partitions_per_flush]:
            if partition.log.directory != directory:
                self.request(partition)  # it has moved to another directory, whose failure must not affect this one
            elif not partition.is_offline:
                try:
                    flushes.append((partition, partition.log, partition.log.begin_flush()))
                except KafkaError as error:
                    if isinstance(error, NoSpaceError):
                        self._full.add(directory)
                        self._on_no_space(directory)
                    continue
                except LogFailedError as error:
                    self._on_log_failed(error)
            del waiting[partition]
        return flushes

    def _run(self, directory: str, flushes: list[Flush]) -> None:
        stopwatch = self._ports.stopwatch
        tasks = [flush for _, _, flush in flushes]

        def flush_all() -> float:
            began = stopwatch()
            run_together(tasks)
            return stopwatch() - began

        def done(seconds: float | None, error: BaseException | None) -> None:
            if isinstance(error, FlushPostponedError):
                self._round_over(directory)
                if error.errno in NO_SPACE:
                    self._on_no_space(directory)
                else:
                    logger.warning("%s: retrying a flush: %s", directory, error)
                self._loop.call_later(RETRY_SECONDS, self._run, directory, flushes)
            elif error is not None:
                self._fail(directory, error)
                for flush in tasks:
                    flush.give_up()
            else:
                if self.on_flushed is not None and seconds is not None:
                    self.on_flushed(seconds)
                self._complete(directory, deque(flushes))

        if all(flush.has_only_files for flush in tasks):
            self._ports.work.sync(directory, [file for flush in tasks for file in flush.files], done)
        else:
            self._ports.work.submit(directory, flush_all, done)
        self._rounds[directory] = self._loop.create_future()

    def _complete(self, directory: str, flushes: deque[Flush]) -> None:
        """Notify the partitions; other requests are served after each busy partition and after a time budget.

        The next round begins one loop turn after the last partition: clients that have received their responses have
        sent their next requests by then, which share the round.
        """
        stopwatch = self._ports.stopwatch
        enough, ends_turn = stopwatch() + NOTIFY_SECONDS_PER_TURN, False
        try:
            while flushes and not ends_turn and stopwatch() < enough:
                partition, log, flush = flushes.popleft()
                ends_turn = partition in self._has_lingered
                if flush.failure is not None:
                    flush.give_up()
                    self._on_log_failed(LogFailedError(log.topic_partition, log.directory, flush.failure))
                    continue
                flushed = log.complete_flush(flush)  # also closes files that a moved log kept open for the flush
                if partition.log is log:
                    partition.on_flushed(flushed)
        except BaseException:
            self._round_over(directory)  # a stop must not wait for a round that failed unexpectedly
            raise
        if flushes:
            self._loop.call_soon(self._complete, directory, flushes)
            return
        self._round_over(directory)
        if self._waiting.get(directory):
            # Twice, for one more turn of the loop: see the docstring.
            self._loop.call_soon(self._loop.call_soon, self._begin_round, directory)
        else:
            self._end(directory)

    def _fail(self, directory: str, error: BaseException) -> None:
        """Drop the waiting partitions of a directory, and report its failure."""
        self._waiting.pop(directory, None)
        self._round_over(directory)
        self._end(directory)
        self._on_dir_failed(directory, error)

    def _round_over(self, directory: str) -> None:
        """Resolve the future on which `end` waits for the round in progress."""
        if (over := self._rounds.pop(directory, None)) is not None:
            over.set_result(None)

    def _end(self, directory: str) -> None:
        """Mark a directory as idle, and let `finish` check whether all are."""
        self._busy.discard(directory)
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
