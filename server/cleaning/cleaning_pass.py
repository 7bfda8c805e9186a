"""One pass of the cleaner over one log: done by a worker, put into place group by group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...storage.cleaning.clean_job import CleanerStats, Event, GroupCleaned, PassFinished, Progress
from ...storage.errors import PASSING, LogDirFailedError

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from ...storage.cleaning.clean_job import CleanJob
    from ...storage.cleaning.log_to_clean import LogToClean
    from ...storage.log_manager import LogManager
    from ...storage.segment_swap import SegmentSwap
    from ..runtime.ports import Ports

logger = room_logger("cleaner")

FINISH_ATTEMPTS, FINISH_RETRY_SECONDS = 30, 1.0
"""The number of attempts to rename the files of a swap, and the seconds between them."""


@dataclass(slots=True)
class PassReport:
    """The result of a pass."""

    topic_partition: str
    ended_ms: int
    seconds: float
    first_dirty_offset: int
    next_dirty_offset: int
    bytes_before: int
    """The size of the segments that were replaced."""
    bytes_after: int
    segments_before: int
    segments_after: int
    compaction_delay_ms: int
    """The delay of the pass beyond `max.compaction.lag.ms`, in ms."""
    stats: CleanerStats

    @property
    def reclaimed_bytes(self) -> int:
        """The number of bytes that the pass has removed from the log."""
        return self.bytes_before - self.bytes_after


class CleaningRun:
    """One pass of the cleaner over one log, on the loop's thread.

    `run` once; `abort` at any time, after which `run` ends soon and changes nothing more.
    """

    def __init__(self, grabbed: LogToClean, log_manager: LogManager, ports: Ports) -> None:
        self.grabbed = grabbed
        self.topic_partition = grabbed.topic_partition
        self.progress = Progress("map", 0, 0)
        """The progress of the current phase."""
        self.ended = asyncio.Event()
        """Set when the pass has ended."""
        self._log_manager = log_manager
        self._ports = ports
        self._groups: asyncio.Queue[GroupCleaned | None] = asyncio.Queue()
        self._finished: PassFinished | None = None
        self._work: asyncio.Task[None] | None = None
        self._is_aborted = False
        self._is_map_complete = False
        self._before = self._after = self._segments_before = self._segments_after = 0

    def abort(self) -> None:
        """Finish the replacement that has begun, and begin no other."""
        self._is_aborted = True
        if self._work is not None:
            self._work.cancel()

    async def run(self, job: CleanJob, loop_time: Callable[[], float]) -> PassReport | None:
        """Do the pass; None if it was aborted.

        Raises OSError, `PassFailedError`, `WorkerDiedError` of the work, and `LogDirFailedError` of the swaps.
        """
        if self._is_aborted:
            return None  # before the work began, which would notice the abort only at its first group
        started = loop_time()
        _log_start(self.topic_partition, job)
        self._work = asyncio.ensure_future(self._ports.cleaning.run(job, self._on_event))
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

    def _on_event(self, event: Event) -> None:
        if isinstance(event, GroupCleaned) or (isinstance(event, Progress) and event.phase == "clean"):
            self._log_map_complete()
        if isinstance(event, Progress):
            self.progress = event
            if not self._is_served():
                self.abort()
        elif isinstance(event, GroupCleaned):
            self._groups.put_nowait(event)
        else:
            self._finished = event

    def _log_map_complete(self) -> None:
        """Log the start of the second phase, once."""
        if not self._is_map_complete:
            self._is_map_complete = True
            logger.info("Offset map for log %s complete", self.topic_partition)
            logger.info("Cleaning log %s", self.topic_partition)

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
        """Rename the files; retry without handles or space, because some files may have their new names already.

        Raises OSError, and `LogDirFailedError` if the shortage persists.
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


def _log_start(topic_partition: TopicPartition, job: CleanJob) -> None:
    """Log the range of a pass in the words of Kafka's cleaner, which log monitoring may look for."""
    ends = (*(segment.base_offset for segment in job.segments[1:]), job.first_uncleanable_offset)
    logger.info("Beginning cleaning of log %s", topic_partition)
    logger.info(
        "Building offset map for log %s for %d segments in offset range [%d, %d)",
        topic_partition,
        sum(end > job.first_dirty_offset for end in ends),
        job.first_dirty_offset,
        job.first_uncleanable_offset,
    )
