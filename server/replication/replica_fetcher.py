"""Kafka's ReplicaFetcherThread: fetches many partitions from one leader, and truncates records the leader lacks.

The point from which logs differ is found by leader epochs, never by the high watermark: since Fetch version 12 the
leader reports it in the response (KIP-595), before that in the response to OffsetForLeaderEpoch (KIP-101, KIP-279).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.fetch_session import FetchTarget
from ...protocol.schema import ZERO_UUID
from ...protocol.special_timestamps import EARLIEST, LATEST
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import LogDirFailedError, NoSpaceError
from ...storage.leader_epochs import EpochEnd
from ..runtime.loop_sharing import TimeBudget
from ..runtime.write_queue import MIN_COUNTED_SECONDS
from .remote_leader_endpoint import SINCE_TOPIC_IDS

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchResponse, PartitionData
    from .partition import Partition
    from .remote_leader_endpoint import FetchLimits, RemoteLeaderEndpoint
    from .replica_manager import ReplicaManager
    from .replication_throttle import FollowerThrottle

logger = room_logger("replication")

SINCE_TRUNCATION_ON_FETCH = 12
NO_PAUSE = 0.0
REMOVED = -2
"""The leader epoch of a removed PartitionFetchState."""
IDLE_SECONDS = 3600.0
"""The pause while there is nothing to fetch; `add_partition` ends it."""
FIRST_BACKOFF_SECONDS, MAX_DOUBLINGS = 0.02, 10
"""The pause before the second attempt; it doubles up to `replica.fetch.backoff.ms`."""

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""Errors that end the fetch session."""


@dataclass(slots=True)
class PartitionFetchState:
    """Kafka's PartitionFetchState: a partition and the state of its next fetch."""

    partition: Partition
    leader_epoch: int
    """The epoch in which the partition was added: in another epoch the state is not valid any more."""
    is_truncated: bool = False
    """Whether the log has been truncated to the records that the leader has, by its epochs."""
    not_before: float = NO_PAUSE
    """The loop time of the next attempt."""
    failures: int = 0
    """Consecutive failures."""
    last_error: ErrorCode | None = None
    """The last error of the leader since records were fetched."""
    target: FetchTarget | None = None
    """The target of the last fetch."""

    @property
    def is_valid(self) -> bool:
        """Whether the partition still follows in that epoch."""
        partition = self.partition
        return not partition.is_leader and not partition.is_offline and partition.leader_epoch == self.leader_epoch


class ReplicaFetcher:
    """A task on the event loop that follows one leader. Owned by the ReplicaFetcherManager.

    `add_partition` and `remove_partition` take effect immediately, also for responses that are still awaited.
    """

    def __init__(
        self,
        leader: RemoteLeaderEndpoint,
        replica_manager: ReplicaManager,
        *,
        limits: Callable[[], FetchLimits],
        throttle: FollowerThrottle,
        paused: Callable[[TopicPartition], AbstractAsyncContextManager[None]],
        stopwatch: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`paused` keeps the cleaner away from a log, `stopwatch` is a clock that advances during a loop turn."""
        self._leader = leader
        self._replica_manager = replica_manager
        self._limits = limits
        self._throttle = throttle
        self._paused = paused
        self._stopwatch = stopwatch
        self._loop = loop
        self._followed: dict[TopicPartition, PartitionFetchState] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that it fetches."""
        return [one.partition for one in self._followed.values()]

    def add_partition(self, partition: Partition) -> None:
        """Fetch a partition in its current leader epoch."""
        self._followed[partition.topic_partition] = PartitionFetchState(partition, partition.leader_epoch)
        self._wake.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition; work on its log ends at its next await."""
        one = self._followed.pop(topic_partition, None)
        if one is not None:
            # A coroutine that awaits may still have this state: `is_valid` is false for it from now on.
            one.leader_epoch = REMOVED

    async def close(self) -> None:
        """Stop the task and close the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._leader.close()

    # -- rounds ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures, last_error = 0, ""
        while True:
            self._wake.clear()
            try:
                pause, failures, last_error = await self._round(), 0, ""
            except Exception as error:
                pause = min(FIRST_BACKOFF_SECONDS * 2**failures, self._limits().backoff_ms / 1000)
                failures = min(failures + 1, MAX_DOUBLINGS)
                if not isinstance(error, KafkaError):
                    logger.exception("fetching from broker %d failed and is retried", self._leader.broker_id)
                elif last_error != str(error):
                    logger.info("fetching from broker %d: %s", self._leader.broker_id, error)
                    last_error = str(error)
                if isinstance(error, KafkaError) and error.code in SESSION_ERRORS:
                    pause = NO_PAUSE  # the next fetch opens another session
            if pause > NO_PAUSE:
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _round(self) -> float:
        """Fetch all due partitions once; return the seconds until the next round. Raises KafkaError."""
        now = self._loop.time()
        for name in [name for name, one in self._followed.items() if not one.is_valid]:
            del self._followed[name]
        due = {name: one for name, one in self._followed.items() if one.not_before <= now}
        if not due:
            return min((one.not_before - now for one in self._followed.values()), default=IDLE_SECONDS)
        version = await self._leader.fetch_version()
        await self._maybe_truncate(due, truncates_on_fetch=version >= SINCE_TRUNCATION_ON_FETCH)
        limits = self._limits()
        targets = {
            name: self._target(one, limits.max_bytes, version)
            for name, one in due.items()
            if one.is_truncated and one.is_valid and not self._throttle.holds_back(one.partition)
        }
        if not targets:
            return limits.backoff_ms / 1000
        response = await self._leader.fetch(version, targets, limits)
        try:
            await self._process_fetch_response(response, targets)
        except BaseException:
            self._leader.forget_session()
            raise
        return NO_PAUSE

    def _target(self, one: PartitionFetchState, max_bytes: int, version: int) -> FetchTarget:
        """Return the target of the next fetch, the same object as last time unless something has changed."""
        partition, known = one.partition, one.target
        log = partition.log
        topic_id = partition.topic_id if version >= SINCE_TOPIC_IDS else ZERO_UUID
        last_epoch = log.leader_epochs.latest_epoch if version >= SINCE_TRUNCATION_ON_FETCH else -1
        if (
            known is None
            or known.offset != log.log_end_offset
            or known.log_start_offset != log.log_start_offset
            or known.last_fetched_epoch != last_epoch
            or known.max_bytes != max_bytes
            or known.topic_id is not topic_id
        ):
            known = one.target = FetchTarget(
                topic_id=topic_id,
                offset=log.log_end_offset,
                leader_epoch=partition.leader_epoch,
                max_bytes=max_bytes,
                last_fetched_epoch=last_epoch,
                log_start_offset=log.log_start_offset,
            )
        return known

    def _delay(self, one: PartitionFetchState) -> None:
        """Fetch the partition again after a backoff: a leader and its followers receive LeaderAndIsr at different
        times."""
        pause = min(FIRST_BACKOFF_SECONDS * 2**one.failures, self._limits().backoff_ms / 1000)
        one.not_before = self._loop.time() + pause
        one.failures = min(one.failures + 1, MAX_DOUBLINGS)

    # -- truncation ------------------------------------------------------------------------------------------------

    async def _maybe_truncate(
        self, due: Mapping[TopicPartition, PartitionFetchState], *, truncates_on_fetch: bool
    ) -> None:
        """Truncate logs to the records that the leader has, unless its fetch responses report diverging epochs.

        The remaining records are on disk before the first fetch, because its offset reports them as durable.
        """
        due = {name: one for name, one in due.items() if not one.is_truncated}
        if not due:
            return
        await self._replica_manager.wait_until_flushed([one.partition for one in due.values()])
        asked: dict[TopicPartition, PartitionFetchState] = {}
        without_epochs: dict[TopicPartition, int] = {}
        for name, one in due.items():
            log = one.partition.log
            if not one.is_valid:
                continue
            if log.log_start_offset == log.log_end_offset:
                one.is_truncated = True
            elif log.leader_epochs.latest_epoch < 0:
                without_epochs[name] = log.high_watermark
            elif truncates_on_fetch:
                one.is_truncated = True
            else:
                asked[name] = one
        for name, offset in without_epochs.items():
            due[name].is_truncated = await self._truncate_to(due[name], offset)
        if not asked:
            return
        ends = await self._leader.fetch_epoch_end_offsets(
            (name, one.leader_epoch, one.partition.log.leader_epochs.latest_epoch) for name, one in asked.items()
        )
        for name, one in asked.items():
            end = ends.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)
            if isinstance(end, ErrorCode):
                self._delay(one)
                continue
            offset, is_certain = one.partition.truncation_offset(end)
            one.is_truncated = await self._truncate_to(one, offset) and is_certain

    async def _truncate_to(self, one: PartitionFetchState, offset: int) -> bool:
        """Truncate a log to an offset; return whether that is done."""
        if not one.is_valid:
            return False  # its role has changed during the request
        name, log = one.partition.topic_partition, one.partition.log
        if offset >= log.log_end_offset:
            log.truncate_to(offset)  # only epochs without records
            return True
        logger.info("%s is truncated from %d to %d", name, log.log_end_offset, offset)
        async with self._paused(name):
            if not one.is_valid:
                return False
            try:
                self._replica_manager.truncate({name: offset})
            except KafkaError as error:
                logger.warning("%s cannot be truncated to %d: %s", name, offset, error)
                self._delay(one)
                return False
        return True

    async def _fetch_offset_and_truncate(self, one: PartitionFetchState) -> None:
        """Truncate or restart a log whose end is outside of the leader's log. Raises KafkaError."""
        partition, leader = one.partition, self._leader
        name, own_end = partition.topic_partition, partition.log.log_end_offset
        end = await leader.fetch_offset(name, one.leader_epoch, LATEST)
        if end < own_end:
            logger.warning("%s: log end offset %d of the leader is below %d of this broker", name, end, own_end)
            await self._truncate_to(one, end)
            return
        start = await leader.fetch_offset(name, one.leader_epoch, EARLIEST)
        if start > own_end and one.is_valid:
            logger.info(
                "%s: log start offset %d of the leader is above log end offset %d of this broker", name, start, own_end
            )
            async with self._paused(name):
                if one.is_valid:
                    self._replica_manager.truncate_fully_and_start_at(name, start)

    # -- responses -------------------------------------------------------------------------------------------------

    async def _process_fetch_response(
        self, response: FetchResponse, targets: Mapping[TopicPartition, FetchTarget]
    ) -> None:
        """Append the fetched records in slices, and wait for the disk if acks=-1 promises it."""
        appended: list[Partition] = []
        names: dict[UUID, str] = {}
        if response.responses and not response.responses[0].topic:
            names = {target.topic_id: name.topic for name, target in targets.items()}
        budget = TimeBudget(self._stopwatch)
        for topic in response.responses:
            topic_name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                name = TopicPartition(topic_name, data.partition_index)
                if data.records:
                    await self._replica_manager.write_queue.wait_for_turn()
                one, target = self._followed.get(name), targets.get(name)
                if one is None or target is None or not one.is_valid or one.leader_epoch != target.leader_epoch:
                    self._leader.forget_session()
                    continue
                if one.partition.log.log_end_offset != target.offset:
                    self._leader.forget_session()  # truncated during the fetch
                    continue
                if await self._process_partition_data(one, data):
                    appended.append(one.partition)
                await budget.step()
        if appended:
            # All partitions together, although one slow log directory delays the others: the next round fetches all due
            # partitions from their log end offsets, and a fetch offset reports all records below it as durable.
            await self._replica_manager.wait_until_flushed(appended)

    async def _process_partition_data(self, one: PartitionFetchState, data: PartitionData) -> bool:
        """Apply the response for one partition; return whether records were appended."""
        partition = one.partition
        try:
            if data.error_code:
                await self._on_partition_error(one, ErrorCode(data.error_code))
                return False
            if data.diverging_epoch.end_offset >= 0:
                # The high watermark does not apply to this log before the truncation, and a session reports it only
                # once.
                self._leader.forget_session()
                end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                await self._truncate_to(one, partition.truncation_offset(end)[0])
                return False
            size = 0
            if data.records:
                first = partition.first_batch_base_offset(memoryview(data.records))
                if first is not None:
                    self._replica_manager.truncate_fully_and_start_at(partition.topic_partition, first)
                began = self._stopwatch()
                size = partition.append_records_as_follower(memoryview(data.records))
                if (seconds := self._stopwatch() - began) >= MIN_COUNTED_SECONDS:
                    self._replica_manager.write_queue.add_time(seconds)
                self._throttle.record_fetched(partition, len(data.records))
            partition.update_watermarks(data.high_watermark, data.log_start_offset)
        except LogDirFailedError as error:
            self._replica_manager.log_failed(error)
        except NoSpaceError as error:
            # The delay repeats this each second until there is space; one line reports the directory.
            self._replica_manager.partition_error(error, *partition.topic_partition)
            self._delay(one)
        except KafkaError as error:
            logger.warning("%s: records of the leader were rejected: %s", partition.topic_partition, error)
            self._delay(one)
        else:
            one.failures, one.last_error = 0, None
            return size > 0
        return False

    async def _on_partition_error(self, one: PartitionFetchState, error: ErrorCode) -> None:
        """Handle the error of one partition. Raises KafkaError."""
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._fetch_offset_and_truncate(one)
        elif error is ErrorCode.FENCED_LEADER_EPOCH:
            # A LeaderAndIsr with the next leader has not arrived yet; it adds the partition again.
            self._followed.pop(one.partition.topic_partition, None)
        else:
            # Not at each attempt: Kafka's broker may take half a minute to lead hundreds of reassigned partitions.
            logger.log(
                logging.DEBUG if error is one.last_error else logging.INFO,
                "%s: the leader, broker %d, returned %s",
                one.partition.topic_partition,
                self._leader.broker_id,
                error.name,
            )
            one.last_error = error
            self._delay(one)
