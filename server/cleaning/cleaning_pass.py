"""One pass of the cleaner over one log: done by a worker, put into place group by group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...storage.cleaning.clean_job import CleanerStats, Event, GroupCleaned, PassFinished, Progress
from ...storage.errors import PASSING, LogDirFailedError

if TYPE_CHECKING:
    from ...storage.cleaning.clean_job import CleanJob
    from ...storage.cleaning.log_to_clean import LogToClean
    from ...storage.log_manager import LogManager
    from ...storage.segment_swap import SegmentSwap
    from ..runtime.ports import Ports

FINISH_ATTEMPTS, FINISH_RETRY_SECONDS = 30, 1.0
"""How often, and how many seconds apart, files that a swap has to name are tried to be named."""


@dataclass(slots=True)
class PassReport:
    """What a pass did."""

    topic_partition: str
    ended_ms: int
    seconds: float
    first_dirty_offset: int
    next_dirty_offset: int
    bytes_before: int
    """Of the segments that were replaced."""
    bytes_after: int
    segments_before: int
    segments_after: int
    compaction_delay_ms: int
    """By how much it was later than `max.compaction.lag.ms` allows."""
    stats: CleanerStats

    @property
    def reclaimed_bytes(self) -> int:
        """How much smaller the log has become."""
        return self.bytes_before - self.bytes_after


class CleaningRun:
    """Loop-thread only. `run` once; `abort` at any time, after which `run` ends soon and changes nothing more."""

    def __init__(self, grabbed: LogToClean, log_manager: LogManager, ports: Ports) -> None:
        self.grabbed = grabbed
        self.topic_partition = grabbed.topic_partition
        self.progress = Progress("map", 0, 0)
        """How far it is."""
        self.ended = asyncio.Event()
        """Set when the pass has ended."""
        self._log_manager = log_manager
        self._ports = ports
        self._groups: asyncio.Queue[GroupCleaned | None] = asyncio.Queue()
        self._finished: PassFinished | None = None
        self._work: asyncio.Task[None] | None = None
        self._is_aborted = False
        self._before = self._after = self._segments_before = self._segments_after = 0

    def abort(self) -> None:
        """Finish what is being put into place, and nothing else."""
        self._is_aborted = True
        if self._work is not None:
            self._work.cancel()

    async def run(self, job: CleanJob, loop_time: Callable[[], float]) -> PassReport | None:
        """Do the pass; None if it was aborted.

        Raises OSError, `PassFailedError`, `WorkerDiedError` of the work, and `LogDirFailedError` of the swaps.
        """
        if self._is_aborted:
            return None  # before the work began, which would not hear of it until its first group
        started = loop_time()
        self._work = asyncio.ensure_future(self._ports.cleaning.run(job, self._told))
        self._work.add_done_callback(lambda _: self._groups.put_nowait(None))
        try:
            while (group := await self._groups.get()) is not None:
                if self._is_aborted or not self._is_served():
                    self.abort()
                    continue
                await self._put_into_place(group)
        except (Exception, asyncio.CancelledError):
            self.abort()
            await asyncio.gather(self._work, return_exceptions=True)
            raise
        if self._is_aborted:
            await asyncio.gather(self._work, return_exceptions=True)
            return None
        await self._work
        assert self._finished is not None, "a pass ended without its last event"
        return PassReport(
            topic_partition=str(self.topic_partition),
            ended_ms=self._ports.now_ms(),
            seconds=loop_time() - started,
            first_dirty_offset=job.first_dirty_offset,
            next_dirty_offset=self._finished.next_dirty_offset,
            bytes_before=self._before,
            bytes_after=self._after,
            segments_before=self._segments_before,
            segments_after=self._segments_after,
            compaction_delay_ms=self.grabbed.compaction_delay_ms,
            stats=self._finished.stats,
        )

    def _is_served(self) -> bool:
        """Whether the log is still there: its directory may have failed."""
        return self._log_manager.logs.get(self.topic_partition) is self.grabbed.log

    def _told(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.progress = event
            if not self._is_served():
                self.abort()
        elif isinstance(event, GroupCleaned):
            self._groups.put_nowait(event)
        else:
            self._finished = event

    async def _put_into_place(self, group: GroupCleaned) -> None:
        """Swap one group. Once begun it is brought to its end, unless the disk fails."""
        log, run = self.grabbed.log, self._ports.work.run
        swap = log.begin_swap([group.base_offset])
        try:
            await run(log.directory, swap.prepare)
            swap.install(group.replaced)
            await self._finish(swap)
        except (Exception, asyncio.CancelledError):
            swap.abandon()
            raise
        self._log_manager.retention.delete_later(log, swap.complete())
        self._before += group.replaced_size
        self._after += group.size
        self._segments_before += len(group.replaced)
        self._segments_after += 1

    async def _finish(self, swap: SegmentSwap) -> None:
        """Have the files named; what lacks handles or space is tried again, as some may have their new names.

        Raises OSError, and `LogDirFailedError` for what lacks them all the time.
        """
        directory = self.grabbed.log.directory
        for _ in range(FINISH_ATTEMPTS):
            try:
                await self._ports.work.run(directory, swap.finish)
                return
            except OSError as error:
                if error.errno not in PASSING:
                    raise
                lacking = error
            await asyncio.sleep(FINISH_RETRY_SECONDS)
        raise LogDirFailedError(directory, lacking)
