"""The cleaner of a running broker: cleans dirty logs on its schedule, and other logs on request."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ...storage.cleaning.log_to_clean import CleanerSettings, LogToClean
from ...storage.errors import FILE_ERRORS, PASSING, LogDirFailedError
from ..config.keys.log_keys import DEFAULT_DEDUPE_BUFFER_BYTES
from ..runtime.loop_sharing import CountBudget
from ..runtime.memory_budget import memory_budget
from ..runtime.ports import PassFailedError, WorkerDiedError
from .cleaning_pass import CleaningRun, PassReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from ...storage.cleaning.log_cleaner_manager import LogCleanerManager
    from ...storage.log import Log
    from ...storage.log_manager import LogManager
    from ..config.broker_config import BrokerConfig
    from ..replication.replica_manager import ReplicaManager
    from ..runtime.ports import Ports

logger = room_logger("cleaner")


class LogCleaner:
    """Kafka's LogCleaner. Loop-thread only; at most `log.cleaner.threads` passes at a time.

    Settings are read at each step, so changes apply immediately. A pass whose worker died or whose disk was full is
    retried after `log.cleaner.backoff.ms`; any other failure marks the log as uncleanable.
    """

    def __init__(
        self,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        *,
        config: BrokerConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.reports: dict[TopicPartition, PassReport] = {}
        """The last pass of each log."""
        self.reclaimed: dict[TopicPartition, int] = {}
        """Bytes that all passes of a log together have made it smaller by."""
        self.passes: dict[TopicPartition, CleaningRun] = {}
        """The running passes."""
        self._replica_manager = replica_manager
        self._log_manager = log_manager
        self._config = config
        self._ports = ports
        self._loop = loop
        self._wake = asyncio.Event()
        self._schedule: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    @property
    def manager(self) -> LogCleanerManager:
        """The manager of the states of logs: clean, dirty, paused."""
        return self._log_manager.cleaner_manager

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """All logs of this broker, compacted or not."""
        return self._log_manager.logs

    @property
    def is_running(self) -> bool:
        """Whether the cleaner searches for dirty logs."""
        return self._schedule is not None and not self._schedule.done()

    @property
    def is_enabled(self) -> bool:
        """Whether the cleaner should search for dirty logs, by `log.cleaner.enable`."""
        return self._config.log_cleaner_enable and not self._is_closing

    @property
    def since_last_look_ms(self) -> int:
        """The time since the last search, in ms."""
        return max(self._ports.now_ms() - self.manager.last_look_ms, 0)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the search for dirty logs, if `log.cleaner.enable` is true."""
        if self._config.log_cleaner_enable:
            logger.info("Starting the log cleaner")
            self._schedule = self._loop.create_task(self._look_for_ever())

    async def close(self) -> None:
        """End all passes. A segment swap that has begun is completed."""
        if self.is_running:
            logger.info("Shutting down the log cleaner")
        self._is_closing = True
        if self._schedule is not None:
            self._schedule.cancel()
            with suppress(asyncio.CancelledError):
                await self._schedule
        for one in list(self.passes.values()):
            self._abort(one.topic_partition)
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._ports.cleaning.close()

    def settings_changed(self) -> None:
        """Settings of the broker or of topics are others now."""
        self._limit()
        for topic_partition, one in list(self.passes.items()):
            if not one.grabbed.log.config.compact:
                self._abort(topic_partition)
        self._wake.set()

    # -- in the background -----------------------------------------------------------------------------------------

    async def _look_for_ever(self) -> None:
        while True:
            self._wake.clear()
            try:
                is_due = True
                while is_due and len(self.passes) < self._config.log_cleaner_threads:
                    is_due = self._begin_next()
            except Exception:
                logger.exception("cannot select a log to clean, retrying in %d ms", self._config.log_cleaner_backoff_ms)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(self._config.log_cleaner_backoff_ms, 1) / 1000):
                    await self._wake.wait()

    def _begin_next(self) -> bool:
        """Start a pass over the dirtiest due log; return whether a log was due."""
        grabbed = self.manager.grab_filthiest_compacted_log()
        if grabbed is not None:
            self._begin(grabbed)
        return grabbed is not None

    def _begin(self, grabbed: LogToClean) -> asyncio.Task[None]:
        """Start a pass over a log that was grabbed for it."""
        one = self.passes[grabbed.topic_partition] = CleaningRun(grabbed, self._log_manager, self._ports)
        task = self._loop.create_task(self._clean(one))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _clean(self, one: CleaningRun) -> None:
        topic_partition, report = one.topic_partition, None
        self._limit()
        try:
            if self.manager.note_begun(one.grabbed):  # on disk before the first gap
                await self._write_checkpoint(one.grabbed.log.directory)
            job = one.grabbed.job(self._settings(), self._ports.now_ms())
            report = await one.run(job, self._loop.time)
        except Exception as error:  # noqa: BLE001 - one log's failure is not another's
            self._failed(topic_partition, error)
        self.manager.done_cleaning(one.grabbed, None if report is None else report.next_dirty_offset)
        if report is not None:
            self._note(one.grabbed.log, report)
        del self.passes[topic_partition]
        one.ended.set()
        self._wake.set()
        if report is not None:
            await self._write_checkpoint(one.grabbed.log.directory)
            await self._replica_manager.delete_old_segments([topic_partition])  # which had to wait

    def _note(self, log: Log, report: PassReport) -> None:
        """Record the result of a pass."""
        topic_partition = log.topic_partition
        self.reports[topic_partition] = report
        self.reclaimed[topic_partition] = self.reclaimed.get(topic_partition, 0) + report.reclaimed_bytes
        logger.info(
            "cleaned %s up to offset %d: from %d to %d bytes in %.1f s",
            topic_partition,
            report.next_dirty_offset,
            report.bytes_before,
            report.bytes_after,
            report.seconds,
        )

    async def _write_checkpoint(self, directory: str) -> None:
        await self._replica_manager.run_on_lanes([self._log_manager.cleaner_checkpoint_task(directory)])

    def _failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Handle a failed pass: mark its log or fail its directory."""
        number = error.errno if isinstance(error, OSError | PassFailedError) else None
        directory = self._log_manager.log_dir_of(topic_partition)
        if isinstance(error, LogDirFailedError):
            self._replica_manager.log_failed(error)
        elif isinstance(error, WorkerDiedError) or number in PASSING:
            logger.warning("cleaning of %s failed and is retried: %s", topic_partition, error)
            self.manager.pause_cleaning(topic_partition)
            self._loop.call_later(
                self._config.log_cleaner_backoff_ms / 1000, self.manager.resume_cleaning, topic_partition
            )
        elif number is not None and number not in FILE_ERRORS and directory is not None:
            self._replica_manager.log_dir_failed(directory, error)
        else:
            self.manager.mark_partition_uncleanable(topic_partition, str(error))

    def _limit(self) -> None:
        self._ports.cleaning.limit(max(self._config.log_cleaner_io_max_bytes_per_second, 1.0))

    def _settings(self) -> CleanerSettings:
        config = self._config
        threads, dedupe_buffer_bytes = max(config.log_cleaner_threads, 1), config.log_cleaner_dedupe_buffer_size
        if dedupe_buffer_bytes == DEFAULT_DEDUPE_BUFFER_BYTES:
            dedupe_buffer_bytes = memory_budget(dedupe_buffer_bytes, self._ports.memory_limit)
        return CleanerSettings(
            hash_name=config.log_cleaner_hash_algorithm,
            dedupe_buffer_bytes=dedupe_buffer_bytes // threads,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes=max(config.log_cleaner_io_buffer_size // threads, 1),
        )

    # -- stopping --------------------------------------------------------------------------------------------------

    def _abort(self, topic_partition: TopicPartition) -> None:
        if self.manager.abort_cleaning(topic_partition) and topic_partition in self.passes:
            self.passes[topic_partition].abort()

    @asynccontextmanager
    async def paused(self, topic_partition: TopicPartition) -> AsyncIterator[None]:
        """Prevent passes over a log that is truncated, moved or deleted."""
        self.manager.pause_cleaning(topic_partition)
        try:
            self._abort(topic_partition)
            await self._wait_for(topic_partition)
            yield
        finally:
            self.manager.resume_cleaning(topic_partition)

    async def hold(self) -> None:
        """Keep the files of all logs where they are, and return when no pass changes them: a backup reads them.

        Passes in progress are aborted, and repeated after `release`.
        """
        self._log_manager.hold_files()
        for one in list(self.passes.values()):
            self._abort(one.topic_partition)
        while self.passes:
            await next(iter(self.passes.values())).ended.wait()

    def release(self) -> None:
        """End `hold`."""
        self._log_manager.release_files()
        self._wake.set()

    @asynccontextmanager
    async def deleting(self, topic_partitions: Iterable[TopicPartition]) -> AsyncIterator[None]:
        """While logs are deleted: the cleaner durably forgets them before their files go."""
        paused, directories, budget = list[TopicPartition](), dict[str, None](), CountBudget()
        try:
            for topic_partition in topic_partitions:
                # As `paused`, without a context manager for each of thousands of partitions.
                self.manager.pause_cleaning(topic_partition)
                paused.append(topic_partition)
                self._abort(topic_partition)
                await self._wait_for(topic_partition)
                self.reports.pop(topic_partition, None)
                self.reclaimed.pop(topic_partition, None)
                directory = self._log_manager.log_dir_of(topic_partition)
                if self.manager.forget(topic_partition) and directory is not None:
                    directories[directory] = None
                await budget.step()
            for directory in directories:
                await self._write_checkpoint(directory)
            yield
        finally:
            for topic_partition in paused:
                self.manager.resume_cleaning(topic_partition)

    async def _wait_for(self, topic_partition: TopicPartition) -> None:
        while (one := self.passes.get(topic_partition)) is not None:
            await one.ended.wait()

    async def _wait_for_turn(self, topic_partition: TopicPartition) -> None:
        """Wait until the log is in no pass, and fewer than `log.cleaner.threads` passes run: each needs its memory."""
        while self.passes:
            one = self.passes.get(topic_partition)
            if one is None and len(self.passes) < max(self._config.log_cleaner_threads, 1):
                return
            await (one or next(iter(self.passes.values()))).ended.wait()

    # -- on request ------------------------------------------------------------------------------------------------

    def compacted(self, topic: str, partition: int | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic on this broker, or one of them, if they can be compacted.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG for a topic that is not compacted.
        """
        found = [
            topic_partition
            for topic_partition in sorted(self._log_manager.logs)
            if topic_partition.topic == topic and partition in (None, topic_partition.partition)
        ]
        if not found:
            wanted = topic if partition is None else f"{topic}-{partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no log of {wanted}")
        if not self._log_manager.logs[found[0]].config.compact:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"cleanup.policy of {topic} does not include compact")
        return found

    async def compact(self, topic: str, partition: int | None = None, *, ignore_lag: bool = False) -> list[PassReport]:
        """Clean a topic, or one partition, now, at any dirty ratio and including the active segments.

        Only `min.compaction.lag.ms` applies, unless `ignore_lag`. A clean log is read if it may contain tombstones
        whose retention is over. Returns the passes that changed something, when they are done.
        Raises KafkaError as `compacted`, KAFKA_STORAGE_ERROR, UNKNOWN_SERVER_ERROR with the reason of a failure.
        """
        reports: list[PassReport] = []
        for topic_partition in self.compacted(topic, partition):
            reports += await self._compact_one(topic_partition, ignore_lag=ignore_lag)
        return reports

    async def _compact_one(self, topic_partition: TopicPartition, *, ignore_lag: bool) -> list[PassReport]:
        self.manager.uncleanable.pop(topic_partition, None)
        await self._wait_for(topic_partition)
        await self._replica_manager.close_active_segment(topic_partition)
        reports: list[PassReport] = []
        while not self._is_closing:
            await self._wait_for_turn(topic_partition)
            if topic_partition not in self._log_manager.logs:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} was deleted or moved during the compaction"
                )
            may_clean = self.manager.may_clean(topic_partition)
            grabbed = self.manager.grab(topic_partition, ignore_lag=ignore_lag, even_clean=not reports)
            if grabbed is None:
                if not may_clean:
                    why = self.manager.uncleanable.get(topic_partition, "it is in use, try again")
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{topic_partition} cannot be cleaned: {why}")
                break
            await asyncio.wait([self._begin(grabbed)])
            report = self.reports.get(topic_partition)
            reason = self.manager.uncleanable.get(topic_partition)
            if reason is not None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{topic_partition} cannot be cleaned: {reason}")
            if report is None or report.first_dirty_offset != grabbed.first_dirty_offset:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the compaction of {topic_partition} failed")
            if report.segments_before:
                reports.append(report)
            if report.next_dirty_offset <= grabbed.first_dirty_offset:
                break
        return reports
