"""A share-partition with its timer and its persister: the part of Kafka's SharePartition that is not pure."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, code_of
from ...protocol.messages.read_share_group_state import (
    PartitionData as ReadPartition,
)
from ...protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadStateData,
)
from ...protocol.messages.write_share_group_state import (
    PartitionData as WritePartition,
)
from ...protocol.messages.write_share_group_state import (
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from ..runtime.loop_sharing import SlicedWork
from .share_group_config_provider import reset_timestamp
from .share_partition import DeadLetters, SharePartition, SharePartitionState
from .state_update import PersisterStateBatch, StateUpdate, merged_batches

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicIdPartition
    from ..replication.partition import Partition
    from ..replication.replica_manager import ReplicaManager
    from .persister import Persister
    from .share_group_dlq_manager import ShareGroupDLQManager
    from .share_group_metrics import ShareGroupMetrics
    from .share_group_settings import ShareGroupSettings

logger = room_logger("share")

NO_START_OFFSET = -1
"""The persisted start offset of a share-partition that no member has fetched from."""
LEAST_TIMER_SECONDS = 0.01
"""The minimum interval between two checks for expired acquisition locks."""
CHANGES_PER_WRITE = 4000
"""State changes in one write of the persister, about 100 KB."""

WriteCallback = Callable[[KafkaError | None], None]
"""Called with the result of a write."""

_COORDINATOR_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_FENCED_ERRORS = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_KEPT_ERRORS = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
FENCING_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, *_KEPT_ERRORS)
"""Errors after which the state must be read again: another broker or an administrator has changed it."""


def persister_error(code: int, message: str | None) -> KafkaError:
    """Return the error for the client after an error of the share coordinator."""
    error = code_of(code)
    if error in _COORDINATOR_ERRORS:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif error in _FENCED_ERRORS:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif error not in _KEPT_ERRORS:
        # INVALID_REQUEST is the error for a group that has not initialized the partition: any client may name one.
        level = logging.DEBUG if error is ErrorCode.INVALID_REQUEST else logging.ERROR
        logger.log(level, "the share coordinator returned %s: %s", error.name, message)
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    return KafkaError(error, message or "")


class _QueuedUpdate(NamedTuple):
    update: StateUpdate
    done: WriteCallback


class ManagedSharePartition:
    """A share-partition that this broker serves. Owned by the SharePartitionManager; used on the event loop.

    One write is in flight at a time, so that the persisted state is always a former state of the share-partition.
    Updates that arrive during a write are written together by the next write.
    """

    def __init__(
        self,
        group_id: str,
        topic_id_partition: TopicIdPartition,
        partition: Partition,
        *,
        settings: Callable[[], ShareGroupSettings],
        replica_manager: ReplicaManager,
        persister: Persister,
        dlq_manager: ShareGroupDLQManager,
        metrics: ShareGroupMetrics,
        loop: asyncio.AbstractEventLoop,
        sliced_work: SlicedWork,
        now_ms: Callable[[], int],
        on_change: Callable[[ManagedSharePartition], None],
        on_failure: Callable[[ManagedSharePartition, KafkaError], None],
        on_dead_letters_written: Callable[[ManagedSharePartition], None],
    ) -> None:
        """`on_change` is called when records may have become available, `on_failure` when the state must be read
        again, `on_dead_letters_written` when no more records are written to the dead-letter queue."""
        self.group_id = group_id
        self.topic_id_partition = topic_id_partition
        self.partition = partition
        """The replica that this broker leads."""
        self.share = SharePartition(group_id, str(topic_id_partition), partition.leader_epoch, settings)
        self.settings = settings
        self.error: KafkaError | None = None
        """The error for clients after the state could not be read, or after the share-partition was dropped."""
        self._replica_manager = replica_manager
        self._persister = persister
        self._dlq_manager = dlq_manager
        self._metrics = metrics
        self._loop = loop
        self._sliced_work = sliced_work
        self._now_ms = now_ms
        self._on_change = on_change
        self._on_failure = on_failure
        self._on_dead_letters_written = on_dead_letters_written
        self._queue: deque[_QueuedUpdate] = deque()
        self._letters: deque[DeadLetters] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_writing = self._is_writing_dead_letters = False

    @property
    def is_writing_dead_letters(self) -> bool:
        """Whether records are being written to the dead-letter queue."""
        return self._is_writing_dead_letters

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads the partition, so that records can be read."""
        return self.partition.is_leader and not self.partition.is_offline

    def continue_in_present_leader_epoch(self) -> bool:
        """Take over the leader epoch of the partition; return whether the state is still the last one.

        If this broker missed an epoch, the leader of that epoch may have delivered records and written their state.
        """
        if self.partition.leader_epoch > self.share.leader_epoch + 1:
            return False
        self.share.leader_epoch = self.partition.leader_epoch
        return True

    # -- life ------------------------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Begin to read the state, unless it is being read or was read before."""
        if self.share.state is SharePartitionState.EMPTY:
            self.share.state = SharePartitionState.INITIALIZING
            self._run(self._initialize())

    async def _initialize(self) -> None:
        begun = self._loop.time()
        try:
            letters = await self._load()
        except KafkaError as error:
            self._fail(error)
            return
        except Exception as error:
            logger.exception("the state of %s:%s cannot be read", self.group_id, self.topic_id_partition)
            self._fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The share-partition failed to load: {error}"))
            return
        self._metrics.partition_load_time.update(self._loop.time() - begun)
        self._write_dead_letters(letters)
        self._on_change(self)

    def _fail(self, error: KafkaError) -> None:
        if self.share.state is not SharePartitionState.FENCED:
            self.share.state = SharePartitionState.FAILED
        self.error = error.as_result()
        self._on_failure(self, self.error)

    async def _load(self) -> list[DeadLetters]:
        topic_id, _, index = self.topic_id_partition
        wanted = ReadPartition(partition=index, leader_epoch=self.share.leader_epoch)
        response = await self._persister.read_state(
            ReadShareGroupStateRequest(
                group_id=self.group_id, topics=[ReadStateData(topic_id=topic_id, partitions=[wanted])]
            )
        )
        ((result,),) = (topic.partitions for topic in response.results)
        if result.error_code:
            raise persister_error(result.error_code, result.error_message)
        start_offset = result.start_offset
        is_new = start_offset == NO_START_OFFSET
        if is_new:
            start_offset = await self._find_start_offset()
        if self.share.state is not SharePartitionState.INITIALIZING:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The share-partition is fenced.")
        if is_new:
            # Otherwise a new leader would begin at another offset if this one crashed before an acknowledgement:
            # records that were produced in between would be lost with `latest`.
            error = await self._write(result.state_epoch, start_offset, 0, [])
            if error is not None:
                raise error
            if self.share.state is not SharePartitionState.INITIALIZING:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The share-partition is fenced.")
        return self.share.initialize(
            result.state_epoch,
            start_offset,
            [
                PersisterStateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in result.state_batches
            ],
        )

    async def _find_start_offset(self) -> int:
        """Return the start offset for a group that has not fetched from the partition: `share.auto.offset.reset`."""
        settings = self.settings()
        topic, index = self.topic_id_partition.topic_partition
        search = self._replica_manager.fetch_offset_for_timestamp(
            topic,
            index,
            reset_timestamp(settings.auto_offset_reset, self._now_ms()),
            isolation=settings.isolation,
            current_leader_epoch=-1,
        )
        found = await self._sliced_work.complete(search)
        # With a duration there may be no record that is new enough: the group begins with the next record.
        return found.offset if found.offset >= 0 else self.partition.high_watermark

    def close(self) -> None:
        """End the acquisition of records, and reject the updates that are not written yet."""
        self.share.mark_fenced()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The share-partition is fenced.")
        while self._queue:
            self._queue.popleft().done(error)

    async def stop(self) -> None:
        """Cancel the running writes, because the broker is stopping."""
        self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, work: asyncio._CoroutineLike[None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- writes ----------------------------------------------------------------------------------------------------

    def submit(self, update: StateUpdate, done: WriteCallback) -> None:
        """Write an update, then complete it and call `done`; call `done` immediately if the update has no changes."""
        self.set_timer()
        if not update:
            done(None)
            return
        if self.share.state is SharePartitionState.FENCED:
            done(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The share-partition is fenced."))
            return
        self._queue.append(_QueuedUpdate(update, done))
        if not self._is_writing:
            self._is_writing = True
            self._run(self._write_queue())

    def when_written(self, done: WriteCallback) -> None:
        """Call `done` when all updates that were submitted before this call are written."""
        if self._is_writing or self._queue:
            self._queue.append(_QueuedUpdate(StateUpdate(), done))
        else:
            done(None)

    async def _write_queue(self) -> None:
        try:
            while self._queue:
                queued = [self._queue.popleft()]
                size = len(queued[0].update.changes)
                while self._queue and size + len(self._queue[0].update.changes) <= CHANGES_PER_WRITE:
                    queued.append(self._queue.popleft())
                    size += len(queued[-1].update.changes)
                await self._write_updates(queued)
        finally:
            self._is_writing = False

    async def _write_updates(self, queued: list[_QueuedUpdate]) -> None:
        share = self.share
        error: KafkaError | None = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The broker is stopping.")
        try:
            batches = merged_batches(one.update for one in queued)
            outcome: KafkaError | None = None
            if batches:
                complete_count = share.delivery_complete_count
                outcome = await self._write(share.state_epoch, share.start_offset, complete_count, batches)
            # Only now: a stop of the broker cancels the write, and its updates may not be durable.
            error = outcome
        except Exception as failure:
            logger.exception("the state of %s:%s cannot be written", self.group_id, self.topic_id_partition)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The share state could not be written: {failure}")
        finally:
            letters: list[DeadLetters] = []
            for update, _ in queued:
                letters += share.complete(update, is_written=error is None)
            # Before the callbacks: one of them may drop the share partition, unless it writes dead letters.
            self._write_dead_letters(letters)
            for _, done in queued:
                done(error)
        self.set_timer()
        if error is not None and error.code in FENCING_ERRORS:
            self._on_failure(self, error)
        else:
            self._on_change(self)

    async def _write(
        self,
        state_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: list[PersisterStateBatch],
    ) -> KafkaError | None:
        topic_id, _, index = self.topic_id_partition
        data = WritePartition(
            partition=index,
            state_epoch=state_epoch,
            leader_epoch=self.share.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=[
                StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        response = await self._persister.write_state(
            WriteShareGroupStateRequest(
                group_id=self.group_id, topics=[WriteStateData(topic_id=topic_id, partitions=[data])]
            )
        )
        ((result,),) = (topic.partitions for topic in response.results)
        if code_of(result.error_code) is ErrorCode.INVALID_REQUEST:
            # The state was deleted after this leader had read it: no later write can succeed either.
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, result.error_message or "")
        return persister_error(result.error_code, result.error_message) if result.error_code else None

    # -- acquisition locks -----------------------------------------------------------------------------------------

    def set_timer(self) -> None:
        """Schedule the expiration of the first acquisition lock."""
        deadline = self.share.next_lock_deadline() if self.share.is_active else None
        if deadline is None or (self._timer is not None and self._timer.when() <= deadline):
            return  # an earlier timer, also of a released lock, calls `_expire`, which sets the timer again
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(max(deadline, self._loop.time() + LEAST_TIMER_SECONDS), self._expire)

    def _expire(self) -> None:
        self._timer = None
        before = self.share.acquisition_lock_timeouts
        update = self.share.expire_locks(self._loop.time())
        self._metrics.acquisition_lock_timeouts += self.share.acquisition_lock_timeouts - before
        self.submit(update, ignore_result)
        if update:
            self._on_change(self)

    # -- dead letters ----------------------------------------------------------------------------------------------

    def _write_dead_letters(self, letters: list[DeadLetters]) -> None:
        """Write records to the dead-letter queue, and archive them whether that succeeds or not, as Kafka does."""
        if self.share.state is SharePartitionState.FENCED:
            return  # the next leader writes the records whose stored state is ARCHIVING
        self._letters += letters
        if self._letters and not self._is_writing_dead_letters:
            self._is_writing_dead_letters = True
            self._run(self._write_queued_dead_letters())

    async def _write_queued_dead_letters(self) -> None:
        try:
            while self._letters and self.share.state is not SharePartitionState.FENCED:
                letters = list(self._letters)
                self._letters.clear()
                try:
                    await self._dlq_manager.write(self.group_id, self.topic_id_partition, letters, self.partition)
                except Exception:
                    # Archived in any case: records that remain ARCHIVING would stop the start offset until a reload.
                    logger.exception(
                        "%d ranges of dead letters of %s:%s could not be written",
                        len(letters),
                        self.group_id,
                        self.topic_id_partition,
                    )
                update = StateUpdate(is_immediate=True)
                for one in letters:
                    update.changes += self.share.archive(one).changes
                self.submit(update, partial(self._on_archived, len(letters)))
                self._on_change(self)
        finally:
            self._is_writing_dead_letters = False
        if self.share.state is not SharePartitionState.FENCED:
            self._on_dead_letters_written(self)

    def _on_archived(self, count: int, error: KafkaError | None) -> None:
        if error is not None:
            # The persisted state is still ARCHIVING: after it is loaded again, the records are written once more.
            logger.warning(
                "%d ranges of dead letters of %s:%s could not be archived: %s",
                count,
                self.group_id,
                self.topic_id_partition,
                error,
            )


def ignore_result(_: KafkaError | None) -> None:
    """Ignore the result of a write that no request waits for."""
