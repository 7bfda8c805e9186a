"""Follows one leader in many partitions: fetches, appends the very bytes, cuts off what the leader does not have.

Kafka's ReplicaFetcherThread. Where logs part is said by leader epochs, never by the high watermark: by the leader in
its answer to a fetch since version 12 (KIP-595), before that in answer to OffsetForLeaderEpoch (KIP-101, KIP-279).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.fetch_session import FetchTarget
from ...protocol.room_logger import room_logger
from ...protocol.schema import ZERO_UUID
from ...protocol.special_timestamps import EARLIEST, LATEST
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import LogDirFailedError
from ...storage.leader_epochs import EpochEnd
from ..runtime.turns import Stint
from .leaders import SINCE_TOPIC_IDS

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchResponse, PartitionData
    from .leaders import FetchLimits, Leader
    from .partition import Partition

logger = room_logger("replication")

SINCE_TRUNCATION_ON_FETCH = 12
NO_PAUSE = 0.0
FORGOTTEN = -2
"""In the place of a leader epoch."""
IDLE_SECONDS = 3600.0
"""While there is nothing to fetch; `follow` ends that."""
FIRST_BACKOFF_SECONDS, MOST_DOUBLINGS = 0.02, 10
"""Before the second attempt; it doubles up to `replica.fetch.backoff.ms`."""


class FollowedLogs(Protocol):
    """What a fetcher does to the logs of this broker, on the loop's thread."""

    def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Cut logs down, durably. Raises KafkaError."""

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        """Empty a log. Raises KafkaError."""

    def disk_failed(self, error: LogDirFailedError) -> None:
        """A log directory is gone."""

    async def synced(self, partitions: Iterable[Partition]) -> None:
        """What was appended to these is on disk, where acks=-1 promises that, or their directory has failed."""


class FetchThrottle(Protocol):
    """The follower's replication quota."""

    def holds_back(self, partition: Partition) -> bool:
        """Whether a partition is not to be fetched now."""

    def fetched(self, partition: Partition, size: int) -> None:
        """So many bytes came for it."""


@dataclass(slots=True)
class Followed:
    """A partition, and how it is to be fetched next."""

    partition: Partition
    leader_epoch: int
    """Its term: in another one this entry is void, and so it is when it has been forgotten."""
    is_compared: bool = False
    """Whether the log has nothing that the leader does not have, as far as epochs tell."""
    not_before: float = NO_PAUSE
    """Loop time."""
    failures: int = 0
    """In a row."""
    target: FetchTarget | None = None
    """What was asked for last."""

    @property
    def is_valid(self) -> bool:
        """Whether its partition still follows in that term."""
        partition = self.partition
        return not partition.is_leader and not partition.is_offline and partition.leader_epoch == self.leader_epoch


class ReplicaFetcher:
    """One task on the loop; `follow` and `forget` count at once, also for answers that are on their way."""

    def __init__(
        self,
        leader: Leader,
        logs: FollowedLogs,
        *,
        limits: Callable[[], FetchLimits],
        throttle: FetchThrottle,
        paused: Callable[[TopicPartition], AbstractAsyncContextManager[None]],
        stopwatch: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`paused` keeps the cleaner away from a log, `stopwatch` is a clock that moves within a turn of the loop."""
        self._leader = leader
        self._logs = logs
        self._limits = limits
        self._throttle = throttle
        self._paused = paused
        self._stopwatch = stopwatch
        self._loop = loop
        self._followed: dict[TopicPartition, Followed] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def partitions(self) -> list[Partition]:
        """What it fetches."""
        return [one.partition for one in self._followed.values()]

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from now on, in its present term."""
        self._followed[partition.topic_partition] = Followed(partition, partition.leader_epoch)
        self._wake.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def forget(self, topic_partition: TopicPartition) -> None:
        """Fetch it no more; work on its log ends at its next wait."""
        one = self._followed.pop(topic_partition, None)
        if one is not None:
            one.leader_epoch = FORGOTTEN

    async def close(self) -> None:
        """Fetch nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._leader.close()

    # -- rounds ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures, told = 0, ""
        while True:
            self._wake.clear()
            pause = min(FIRST_BACKOFF_SECONDS * 2**failures, self._limits().backoff_ms / 1000)
            failures = min(failures + 1, MOST_DOUBLINGS)
            try:
                pause, failures, told = await self._round(), 0, ""
            except KafkaError as error:
                if told != str(error):
                    logger.info("fetching from broker %d: %s", self._leader.broker_id, error)
                told = str(error)
                if error.code in (
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                ):
                    pause = NO_PAUSE  # the next fetch opens another one
            except Exception:
                logger.exception("fetching from broker %d failed; it goes on", self._leader.broker_id)
            if pause > NO_PAUSE:
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _round(self) -> float:
        """Fetch once, all that is to be fetched now; seconds to wait for the next time. Raises KafkaError."""
        now = self._loop.time()
        for name in [name for name, one in self._followed.items() if not one.is_valid]:
            del self._followed[name]
        due = {name: one for name, one in self._followed.items() if one.not_before <= now}
        if not due:
            return min((one.not_before - now for one in self._followed.values()), default=IDLE_SECONDS)
        version = await self._leader.fetch_version()
        await self._compare(due, tells_divergence=version >= SINCE_TRUNCATION_ON_FETCH)
        limits = self._limits()
        targets = {
            name: self._target(one, limits.max_bytes, version)
            for name, one in due.items()
            if one.is_compared and one.is_valid and not self._throttle.holds_back(one.partition)
        }
        if not targets:
            return limits.backoff_ms / 1000
        response = await self._leader.fetch(version, targets, limits)
        try:
            await self._take_in(response, targets)
        except BaseException:
            self._leader.forget_session()
            raise
        return NO_PAUSE

    def _target(self, one: Followed, max_bytes: int, version: int) -> FetchTarget:
        """What to ask for; the very same as the last time unless something has changed."""
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

    def _put_off(self, one: Followed) -> None:
        """Fetch it again after a while: orders reach a leader and its followers one soon after the other."""
        pause = min(FIRST_BACKOFF_SECONDS * 2**one.failures, self._limits().backoff_ms / 1000)
        one.not_before = self._loop.time() + pause
        one.failures = min(one.failures + 1, MOST_DOUBLINGS)

    # -- where logs part -------------------------------------------------------------------------------------------

    async def _compare(self, due: Mapping[TopicPartition, Followed], *, tells_divergence: bool) -> None:
        """Have logs cut down to what the leader has, if its answers to fetches do not say where they part.

        What is left is on the disk: a fetch says so, whoever took it in, in whatever term or run.
        """
        due = {name: one for name, one in due.items() if not one.is_compared}
        if not due:
            return
        await self._logs.synced([one.partition for one in due.values()])
        asked: dict[TopicPartition, Followed] = {}
        without_epochs: dict[TopicPartition, int] = {}
        for name, one in due.items():
            log = one.partition.log
            if not one.is_valid:
                continue
            if log.log_start_offset == log.log_end_offset:
                one.is_compared = True
            elif log.leader_epochs.latest_epoch < 0:
                without_epochs[name] = log.high_watermark
            elif tells_divergence:
                one.is_compared = True
            else:
                asked[name] = one
        for name, offset in without_epochs.items():
            due[name].is_compared = await self._cut(due[name], offset)
        if not asked:
            return
        ends = await self._leader.epoch_ends(
            (name, one.leader_epoch, one.partition.log.leader_epochs.latest_epoch) for name, one in asked.items()
        )
        for name, one in asked.items():
            end = ends.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)
            if isinstance(end, ErrorCode):
                self._put_off(one)
                continue
            offset, is_certain = one.partition.truncation_offset(end)
            one.is_compared = await self._cut(one, offset) and is_certain

    async def _cut(self, one: Followed, offset: int) -> bool:
        """Cut a log down to an offset; whether that is done."""
        if not one.is_valid:
            return False  # since the leader was asked: it may lead now
        name, log = one.partition.topic_partition, one.partition.log
        if offset >= log.log_end_offset:
            log.truncate_to(offset)  # nothing but epochs without records
            return True
        logger.info("%s is cut from %d to %d", name, log.log_end_offset, offset)
        async with self._paused(name):
            if not one.is_valid:
                return False
            try:
                self._logs.truncate({name: offset})
            except KafkaError as error:
                logger.warning("%s cannot be cut to %d: %s", name, offset, error)
                self._put_off(one)
                return False
        return True

    async def _start_elsewhere(self, one: Followed) -> None:
        """The leader has nothing at this log's end: its own end is below, or its start above. Raises KafkaError."""
        partition, leader = one.partition, self._leader
        name, own_end = partition.topic_partition, partition.log.log_end_offset
        end = await leader.offset(name, one.leader_epoch, LATEST)
        if end < own_end:
            logger.warning("%s ends at %d at its leader and at %d here", name, end, own_end)
            await self._cut(one, end)
            return
        start = await leader.offset(name, one.leader_epoch, EARLIEST)
        if start > own_end and one.is_valid:
            logger.info("%s begins at %d at its leader and ends at %d here", name, start, own_end)
            async with self._paused(name):
                if one.is_valid:
                    self._logs.truncate_fully_and_start_at(name, start)

    # -- answers ---------------------------------------------------------------------------------------------------

    async def _take_in(self, response: FetchResponse, targets: Mapping[TopicPartition, FetchTarget]) -> None:
        """Append what came, some of it in each turn of the loop, and wait for the disk if that is promised."""
        appended: list[Partition] = []
        names: dict[UUID, str] = {}
        if response.responses and not response.responses[0].topic:
            names = {target.topic_id: name.topic for name, target in targets.items()}
        stint = Stint(self._stopwatch)
        for topic in response.responses:
            topic_name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                name = TopicPartition(topic_name, data.partition_index)
                one, target = self._followed.get(name), targets.get(name)
                if one is None or target is None or not one.is_valid or one.leader_epoch != target.leader_epoch:
                    self._leader.forget_session()
                    continue
                if one.partition.log.log_end_offset != target.offset:
                    self._leader.forget_session()  # cut since it was asked for
                    continue
                if await self._take_in_one(one, data):
                    appended.append(one.partition)
                await stint.step()
        if appended:
            await self._logs.synced(appended)

    async def _take_in_one(self, one: Followed, data: PartitionData) -> bool:
        """The answer about one partition; whether there is anything new."""
        partition = one.partition
        try:
            if data.error_code:
                await self._answered(one, ErrorCode(data.error_code))
                return False
            if data.diverging_epoch.end_offset >= 0:
                # Its watermark says nothing of this log before that is cut, and a session tells of it only once.
                self._leader.forget_session()
                end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                await self._cut(one, partition.truncation_offset(end)[0])
                return False
            size = 0
            if data.records:
                first = partition.batch_it_begins_in(memoryview(data.records))
                if first is not None:
                    self._logs.truncate_fully_and_start_at(partition.topic_partition, first)
                size = partition.append_records_as_follower(memoryview(data.records))
                self._throttle.fetched(partition, len(data.records))
            partition.follow_watermarks(data.high_watermark, data.log_start_offset)
        except LogDirFailedError as error:
            self._logs.disk_failed(error)
        except KafkaError as error:
            logger.warning("%s: what its leader sent is not taken: %s", partition.topic_partition, error)
            self._put_off(one)
        else:
            one.failures = 0
            return size > 0
        return False

    async def _answered(self, one: Followed, error: ErrorCode) -> None:
        """An error for one partition. Raises KafkaError."""
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._start_elsewhere(one)
        elif error is ErrorCode.FENCED_LEADER_EPOCH:
            # This broker has not yet been told of the next leader: until then there is nobody to ask.
            self._followed.pop(one.partition.topic_partition, None)
        else:
            logger.info("%s at broker %d: %s", one.partition.topic_partition, self._leader.broker_id, error.name)
            self._put_off(one)
