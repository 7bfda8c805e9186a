"""Kafka's ShareCoordinator: the requests for the state of share-partitions (KIP-932), and its log.

The leader of a partition of `__share_group_state` coordinates the share-partitions in it. Their state changes in memory
first; all changes of one turn of the loop are one batch of records, and each response waits until its records are
committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ....protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from ....protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from ....protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from ....protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from ....protocol.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from ...metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from ...runtime.loop_sharing import ITEMS_PER_TURN, CountBudget, lookup_steps, raise_error
from ...runtime.scheduler import IsolatedWork
from ..coordinator_log import TOO_LARGE, WRITE_ERRORS, CoordinatorRecord, ResponseCallback, ignore
from ..coordinator_runtime import CoordinatorRuntime, CoordinatorShard
from .coordinator_batch import CoordinatorBatch
from .persister_state_batch_combiner import SPLICED_BATCHES, PersisterStateBatch, normalize_in_steps
from .share_coordinator_metrics import ShareCoordinatorMetrics
from .share_coordinator_record_helpers import ShareStateRecord, read_record
from .share_coordinator_shard import OperationError, OperationResult, Outcome, ShareCoordinatorShard
from .share_group_offset import (
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    ShareGroupOffset,
)
from .share_partition_key import SharePartitionKey

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.partition import Partition
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.loop_sharing import SlicedWork, Steps
    from ...runtime.ports import Ports
    from ..coordinator_topic import TopicCreator

T = TypeVar("T")

logger = room_logger("share")

SHARE_PARTITIONS_PER_TURN = 20
"""Share-partitions of one request that are changed, or looked up, in one turn of the loop."""
BATCH_OVERHEAD_BYTES = 200
REMEMBERED_TOPIC_DELETIONS = 1000
"""Deleted topics whose state is also deleted from partitions that are loaded later."""
ADAPTIVE_LINGER_MS = -1

APPEND_ERRORS = {
    **WRITE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    **dict.fromkeys(TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
"""The error code that a broker receives if the state could not be written."""

NO_ERROR = OperationError(ErrorCode.NONE, None)

Operate = Callable[[ShareCoordinatorShard, "Partition", SharePartitionKey, Any], Outcome]
"""Runs the operation of one partition of a request."""
Prepare = Callable[[Any], Coroutine[Any, Any, Any]]
OperationCallback = Callable[[OperationError, ShareGroupOffset | None], None]
Results = dict[UUID, dict[int, tuple[OperationError, ShareGroupOffset | None]]]
"""Error and state by topic id and partition."""


class ShareCoordinator:
    """The coordinator of the share-partitions in those partitions of `__share_group_state` that this broker leads.

    Owned by the broker and used on the loop's thread only. The methods for requests never raise KafkaError: each
    share-partition of the response has its own error.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: TopicCreator,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        sliced_work: SlicedWork,
    ) -> None:
        self._config = config
        self._replicas = replica_manager
        self._metadata = metadata
        self._now_ms = ports.now_ms
        self._loop = loop
        self._sliced_work = sliced_work
        self.metrics = ShareCoordinatorMetrics()
        self._runtime: CoordinatorRuntime[ShareCoordinatorShard] = CoordinatorRuntime(
            SHARE_GROUP_STATE_TOPIC,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            now_ms=ports.now_ms,
            loop=loop,
            new_state=self._new_state,
            load=self._load,
            on_loaded=self._on_loaded,
            on_unloaded=self._on_unloaded,
        )
        self._topic, self._log = self._runtime.topic, self._runtime.coordinator_log
        self._batches: dict[ShareCoordinatorShard, CoordinatorBatch] = {}
        """The batch that is not appended yet, by shard."""
        self._appended: dict[ShareCoordinatorShard, CoordinatorBatch] = {}
        """The last batch that is appended and has no outcome yet, by shard."""
        self._deleted_topic_ids: dict[UUID, None] = {}
        self._is_active = False
        metadata.on_topic_ids_removed.append(self._on_topics_deleted)

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the share-partitions of all partitions that this broker leads."""
        self._is_active = True
        self._runtime.start()

    async def close(self) -> None:
        """Unload all share-partitions; waiting requests receive NOT_COORDINATOR."""
        self._is_active = False
        await self._runtime.close()

    @property
    def is_loading(self) -> bool:
        """Whether share-partitions of some partitions are still being loaded."""
        return self._runtime.is_loading

    def _new_state(self) -> ShareCoordinatorShard:
        return ShareCoordinatorShard(
            has_partition=self._has_partition,
            updates_per_snapshot=lambda: self._config.share_coordinator_snapshot_update_records_per_snapshot,
            now_ms=self._now_ms,
        )

    def _has_partition(self, topic_id: UUID, index: int) -> bool:
        name = self._metadata.topic_name(topic_id)
        return name is not None and self._metadata.has_partition(name, index)

    async def _load(self, partition: Partition) -> ShareCoordinatorShard:
        state = self._new_state()
        isolated = IsolatedWork("a record of a share-partition is skipped")

        def replay(offset: int, key: bytes, value: bytes | None) -> None:
            with isolated:
                record = read_record(key, value)
                if record is None:
                    logger.warning("a record of a later version is ignored in %s", partition.topic_partition)
                else:
                    state.replay(record, offset)

        await self._log.replay(partition, replay)
        return state

    async def _on_loaded(self, state: ShareCoordinatorShard) -> None:
        # In the next turn: the runtime serves the shard after this method returns, and the cleanup skips other shards.
        self._loop.call_soon(self._cleanup_share_state, self._deleted_topic_ids.copy())

    def _on_unloaded(self, state: ShareCoordinatorShard) -> None:
        batch = self._batches.pop(state, None)
        if batch is not None:
            if batch.flush_handle is not None:
                batch.flush_handle.cancel()
            batch.complete(ErrorCode.NOT_COORDINATOR)
        appended = self._appended.pop(state, None)
        if appended is not None:
            appended.complete(ErrorCode.NOT_COORDINATOR)

    def count_partitions(self) -> dict[str, int]:
        """Return the number of led partitions of `__share_group_state` by state (Kafka: num-partitions)."""
        counts = {"loading": 0, "active": 0, "failed": 0}
        for shard in self._runtime:
            if shard.is_current:
                is_loading = shard.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                counts["active" if shard.is_loaded else "loading" if is_loading else "failed"] += 1
        return counts

    def read_metrics(self) -> ShareCoordinatorMetrics:
        """Return the measurements, without partitions that this broker does not lead any more."""
        self.metrics.remove_partitions(lambda index: self._log.get_leader_partition(index) is not None)
        return self.metrics

    def read_offsets(self) -> Iterator[tuple[SharePartitionKey, ShareGroupOffset]]:
        """Yield the stored offsets of the share-partitions from which their groups have fetched.

        The caller may wait between two of them.
        """
        for shard in list(self._runtime):
            if not shard.is_loaded:
                continue
            for key, entry in list(shard.state.entries.items()):
                offset = entry.offset
                if offset.start_offset != UNINITIALIZED_START_OFFSET and offset.delivery_complete_count >= 0:
                    yield key, offset

    # -- coordinators of share-partitions ------------------------------------------------------------------------------

    async def find_coordinator(self, key: SharePartitionKey) -> int:
        """Return the id of the broker that coordinates a share-partition; create the topic if it does not exist.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE.
        """
        return await self._topic.find_coordinator(key.coordinator_key)

    def partition_for(self, key: SharePartitionKey) -> int | None:
        """Return the partition of `__share_group_state` for a key; None while the topic does not exist."""
        return self._topic.partition_of(key.coordinator_key)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def initialize_state(self, request: InitializeShareGroupStateRequest) -> InitializeShareGroupStateResponse:
        """Create the state of share-partitions."""

        def initialize(shard: ShareCoordinatorShard, _: Partition, key: SharePartitionKey, data: Any) -> Outcome:
            return shard.initialize_state(key, data)

        results = await self._operate_all(request, initialize, "Unable to initialize share group state: ")
        return InitializeShareGroupStateResponse(
            results=_topic_results(
                results,
                initialize_share_group_state.InitializeStateResult,
                initialize_share_group_state.PartitionResult,
            )
        )

    async def write_state(self, request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
        """Combine changes with the state of share-partitions."""
        start_time = self._loop.time()

        def write(shard: ShareCoordinatorShard, partition: Partition, key: SharePartitionKey, data: Any) -> Outcome:
            self.metrics.record_write()
            partition_data, batches = data
            return shard.write_state(key, partition_data, batches, _max_record_bytes(partition))

        results = await self._operate_all(
            request, write, "Unable to write share group state: ", prepare=self._with_normalized_batches
        )
        self.metrics.record_write_latency(self._loop.time() - start_time)
        return WriteShareGroupStateResponse(
            results=_topic_results(
                results, write_share_group_state.WriteStateResult, write_share_group_state.PartitionResult
            )
        )

    async def read_state(self, request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse:
        """Return the state of share-partitions to the leader of a partition, and store a new leader epoch."""

        def read(shard: ShareCoordinatorShard, partition: Partition, key: SharePartitionKey, data: Any) -> Outcome:
            followers = partition.followers
            confirm = followers is not None and bool(followers.other_electable_replicas)
            outcome = shard.read_state(key, data, _max_record_bytes(partition), confirm=confirm)
            if isinstance(outcome, OperationResult) and outcome.records:
                self.metrics.record_write()
            return outcome

        results = await self._operate_all(request, read, "Unable to read share group state: ")
        return ReadShareGroupStateResponse(
            results=[
                read_share_group_state.ReadStateResult(
                    topic_id=topic_id,
                    partitions=[_read_result(index, *result) for index, result in partitions.items()],
                )
                for topic_id, partitions in results.items()
            ]
        )

    async def read_state_summary(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> ReadShareGroupStateSummaryResponse:
        """Return the offsets of share-partitions to an administrator."""

        def read(shard: ShareCoordinatorShard, _: Partition, key: SharePartitionKey, data: Any) -> Outcome:
            return shard.read_state_summary(key, data)

        results = await self._operate_all(request, read, "Unable to read share group state summary: ")
        return ReadShareGroupStateSummaryResponse(
            results=[
                read_share_group_state_summary.ReadStateSummaryResult(
                    topic_id=topic_id,
                    partitions=[_read_summary_result(index, *result) for index, result in partitions.items()],
                )
                for topic_id, partitions in results.items()
            ]
        )

    async def delete_state(self, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse:
        """Delete the state of share-partitions."""

        def delete(shard: ShareCoordinatorShard, _: Partition, key: SharePartitionKey, data: Any) -> Outcome:
            return shard.delete_state(key, data)

        results = await self._operate_all(request, delete, "Unable to delete share group state: ")
        return DeleteShareGroupStateResponse(
            results=_topic_results(
                results, delete_share_group_state.DeleteStateResult, delete_share_group_state.PartitionResult
            )
        )

    async def _with_normalized_batches(
        self, data: write_share_group_state.PartitionData
    ) -> tuple[write_share_group_state.PartitionData, list[PersisterStateBatch]]:
        """Return the part of a request, and its state batches in order; the operation rejects invalid batches."""
        batches = [
            PersisterStateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in data.state_batches
            if one.first_offset <= one.last_offset
        ]
        if len(batches) <= SPLICED_BATCHES:
            return data, batches
        return data, await self._sliced_work.complete(normalize_in_steps(batches))

    async def _operate_all(
        self, request: Any, operate: Operate, failure: str, *, prepare: Prepare | None = None
    ) -> Results:
        """Run an operation for each share-partition of a request, in slices; return when all results are durable.

        As in Kafka a request without a group id or without partitions has no results, and a share-partition that the
        request repeats has the result of its last operation. `failure` begins the message of an error that is not the
        operation's own. `prepare` runs before the operation, in slices and without the state; the operation receives
        its result.
        """
        results: Results = {}
        is_initialize = isinstance(request, InitializeShareGroupStateRequest)
        if not request.group_id or not (is_initialize or all(topic.partitions for topic in request.topics)):
            return results
        pending = _PendingOperations(self._loop)
        budget = CountBudget(SHARE_PARTITIONS_PER_TURN)
        for topic in request.topics:
            for data in topic.partitions:
                key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
                prepared = data if prepare is None else await prepare(data)
                self._operate(key, prepared, operate, pending.expect(results, key), failure)
                await budget.step(lookup_steps(request.group_id))
        await pending.wait()
        return results

    def _operate(
        self, key: SharePartitionKey, data: Any, operate: Operate, reply: OperationCallback, failure: str
    ) -> None:
        """Run one operation; `reply` receives the result when the state that it depends on is durable."""
        try:
            if not self._is_active:
                reply(OperationError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Share coordinator is not available."), None)
                return
            shard = self._runtime.get_loaded_shard(self.partition_for(key))
            outcome = operate(shard.state, shard.partition, key, data)
            encoded = [] if isinstance(outcome, OperationError) else [record.encode() for record in outcome.records]
        except KafkaError as error:
            reply(OperationError(error.code, failure + error.message), None)
            return
        except Exception:
            # Only this share-partition fails: an operation changes no state before its records are complete.
            logger.exception("an operation on share-partition %s has failed", key.coordinator_key)
            reply(OperationError(ErrorCode.UNKNOWN_SERVER_ERROR, failure + "unexpected error"), None)
            return
        if isinstance(outcome, OperationError):
            reply(outcome, None)
            return

        def done(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                reply(NO_ERROR, outcome.offset)
            else:
                code = APPEND_ERRORS.get(code, code)
                reply(OperationError(code, failure + code.name), None)

        if outcome.records:
            self._append(shard, outcome.records, encoded, done)
        else:
            self._await_commit(shard, done)

    # -- the log -------------------------------------------------------------------------------------------------------

    def _append(
        self,
        shard: CoordinatorShard[ShareCoordinatorShard],
        records: list[ShareStateRecord],
        encoded: list[CoordinatorRecord],
        done: ResponseCallback,
    ) -> None:
        """Apply records to a shard and append them with other records of the same turn; `done` receives the outcome."""
        state, partition = shard.state, shard.partition
        size = sum(record.size_limit for record in records)
        batch = self._batches.get(state)
        if batch is not None and batch.size + size > _max_record_bytes(partition):
            self._flush(shard)
            batch = None
        if batch is None:
            if not shard.is_current:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                return
            batch = self._batches[state] = CoordinatorBatch(state)
            self._schedule_flush(shard, batch)
        batch.add(records, encoded, partition.log_end_offset, done)
        if self._config.share_coordinator_append_linger_ms == 0:
            self._flush(shard)

    def _schedule_flush(self, shard: CoordinatorShard[ShareCoordinatorShard], batch: CoordinatorBatch) -> None:
        """Append the batch after the linger time; the adaptive linger time ends with this turn of the loop."""
        linger_ms = self._config.share_coordinator_append_linger_ms
        if linger_ms > 0:
            batch.flush_handle = self._loop.call_later(linger_ms / 1000, self._flush, shard)
        elif linger_ms == ADAPTIVE_LINGER_MS:
            batch.flush_handle = self._loop.call_soon(self._flush, shard)

    def _flush(self, shard: CoordinatorShard[ShareCoordinatorShard]) -> None:
        """Append the batch of a shard. If that fails its operations have no effect."""
        state, index = shard.state, shard.partition.topic_partition.partition
        batch = self._batches.pop(state, None)
        if batch is None:
            return
        if batch.flush_handle is not None:
            batch.flush_handle.cancel()
            batch.flush_handle = None
        self._appended[state] = batch
        is_appended = shard.is_current and self._log.append(
            index,
            batch.encoded,
            partial(self._on_append_outcome, state, batch),
            timeout_ms=self._config.share_coordinator_write_timeout_ms,
            on_overdue=partial(self._on_append_overdue, batch),
        )
        if not is_appended:
            batch.revert()
            self._on_append_outcome(state, batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _on_append_outcome(self, state: ShareCoordinatorShard, batch: CoordinatorBatch, outcome: ErrorCode) -> None:
        if self._appended.get(state) is batch:
            del self._appended[state]
        batch.complete(outcome)

    def _on_append_overdue(self, batch: CoordinatorBatch) -> None:
        """Respond with a timeout; the records may still become durable, and the state in memory contains them."""
        batch.is_overdue = True
        batch.complete(ErrorCode.REQUEST_TIMED_OUT)

    def _await_commit(self, shard: CoordinatorShard[ShareCoordinatorShard], done: ResponseCallback) -> None:
        """Call `done` when all records that are applied to a shard are committed; immediately if there are none."""
        batch = self._batches.get(shard.state) or self._appended.get(shard.state)
        if batch is None:
            done(ErrorCode.NONE)
        elif batch.is_overdue:
            done(ErrorCode.REQUEST_TIMED_OUT)
        else:
            batch.add_reply(done)

    # -- maintenance ---------------------------------------------------------------------------------------------------

    async def prune_records(self) -> None:
        """Delete the records before the earliest of the last snapshots of all share-partitions, which are redundant."""
        for shard in self._runtime:
            with IsolatedWork(f"{shard.partition.topic_partition} could not be pruned"):
                await self._prune_partition(shard)

    async def _prune_partition(self, shard: CoordinatorShard[ShareCoordinatorShard]) -> None:
        partition, index = shard.partition, shard.partition.topic_partition.partition
        if not (shard.is_loaded and shard.is_current):
            return
        # The records before a snapshot are required until it is committed: it may be reverted or truncated.
        self._flush(shard)
        committed: asyncio.Future[ErrorCode] = self._loop.create_future()

        def set_outcome(outcome: ErrorCode) -> None:
            # Done if the broker stops: the cancellation of this coroutine cancels the future.
            if not committed.done():
                committed.set_result(outcome)

        self._await_commit(shard, set_outcome)
        end = partition.log_end_offset
        offset = await self._sliced_work.complete(shard.state.last_redundant_offset())
        outcome = await committed
        is_committed = outcome is ErrorCode.NONE and shard.is_current and partition.high_watermark >= end
        if not is_committed or offset <= partition.log_start_offset:
            return
        (result,) = await self._replicas.delete_records(
            [(SHARE_GROUP_STATE_TOPIC, index, offset)],
            self._config.share_coordinator_write_timeout_ms,
            allow_internal_topic_deletion=True,
        )
        if isinstance(result, KafkaError):
            logger.warning("%s could not be pruned up to %d: %s", partition.topic_partition, offset, result)
        else:
            self.metrics.record_prune(index, offset)

    async def snapshot_cold_partitions(self) -> None:
        """Write old snapshots again: the records after the oldest snapshot cannot be deleted as redundant."""
        budget = CountBudget(SHARE_PARTITIONS_PER_TURN)
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        for shard in self._runtime:
            state = shard.state
            if not await self._is_any_snapshot_stale(state, budget):
                continue
            for key in list(state.entries):
                if not (shard.is_loaded and shard.is_current) or shard.state is not state:
                    break
                records = state.snapshot_if_cold(key, interval_ms)
                if records:
                    self._append(shard, records, [record.encode() for record in records], ignore)
                await budget.step()

    async def _is_any_snapshot_stale(self, state: ShareCoordinatorShard, budget: CountBudget) -> bool:
        """Return whether the last snapshot of a share-partition is not a copy of an older snapshot."""
        for entry in list(state.entries.values()):
            if entry.offset.create_timestamp == entry.offset.write_timestamp:
                return True
            await budget.step()
        return False

    def _on_topics_deleted(self, topic_ids: list[UUID]) -> None:
        """Delete the state of deleted topics."""
        deleted = dict.fromkeys(topic_ids)
        self._deleted_topic_ids |= deleted
        while len(self._deleted_topic_ids) > REMEMBERED_TOPIC_DELETIONS:
            del self._deleted_topic_ids[next(iter(self._deleted_topic_ids))]
        self._cleanup_share_state(deleted)

    def _cleanup_share_state(self, topic_ids: dict[UUID, None]) -> None:
        if topic_ids:
            self._sliced_work.run(self._cleanup_steps(topic_ids), raise_error)

    def _cleanup_steps(self, topic_ids: dict[UUID, None]) -> Steps[None]:
        for shard in self._runtime:
            state = shard.state
            for number, key in enumerate(list(state.entries), 1):
                if not (shard.is_loaded and shard.is_current) or shard.state is not state:
                    break
                records = state.cleanup_share_state(key, topic_ids)
                if records:
                    self._append(shard, records, [record.encode() for record in records], ignore)
                if records or number % ITEMS_PER_TURN == 0:
                    yield


class _PendingOperations:
    """The operations of one request whose results are not durable yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._all_done: asyncio.Future[None] | None = None

    def expect(self, results: Results, key: SharePartitionKey) -> OperationCallback:
        """Return the reply function of one operation, which stores its result."""
        self._count += 1
        partitions = results.setdefault(key.topic_id, {})

        def reply(error: OperationError, offset: ShareGroupOffset | None) -> None:
            partitions[key.partition] = error, offset
            self._count -= 1
            if not self._count and self._all_done is not None and not self._all_done.done():
                self._all_done.set_result(None)

        return reply

    async def wait(self) -> None:
        """Wait for all operations."""
        if self._count:
            self._all_done = self._loop.create_future()
            await self._all_done


def _max_record_bytes(partition: Partition) -> int:
    """Return the bytes of the largest record, or records of one batch, that the log accepts."""
    return partition.max_message_bytes - BATCH_OVERHEAD_BYTES


def _topic_results(
    results: Results, topic_result: Callable[..., T], partition_result: Callable[..., object]
) -> list[T]:
    """Return the topics of a response that has an error code per partition and no data.

    `topic_result` and `partition_result` are the message classes of that response.
    """
    return [
        topic_result(
            topic_id=topic_id,
            partitions=[
                partition_result(partition=index, error_code=error.code, error_message=error.message)
                for index, (error, _) in partitions.items()
            ],
        )
        for topic_id, partitions in results.items()
    ]


def _read_result(
    index: int, error: OperationError, offset: ShareGroupOffset | None
) -> read_share_group_state.PartitionResult:
    result = read_share_group_state.PartitionResult(partition=index, error_code=error.code, error_message=error.message)
    if offset is not None:
        result.state_epoch = offset.state_epoch
        result.start_offset = offset.start_offset
        result.state_batches = [
            read_share_group_state.StateBatch(
                first_offset=one.first_offset,
                last_offset=one.last_offset,
                delivery_state=one.delivery_state,
                delivery_count=one.delivery_count,
            )
            for one in offset.state_batches
        ]
    return result


def _read_summary_result(
    index: int, error: OperationError, offset: ShareGroupOffset | None
) -> read_share_group_state_summary.PartitionResult:
    result = read_share_group_state_summary.PartitionResult(
        partition=index, error_code=error.code, error_message=error.message
    )
    if offset is not None:
        result.state_epoch = offset.state_epoch
        result.leader_epoch = offset.leader_epoch
        result.start_offset = offset.start_offset
        result.delivery_complete_count = offset.delivery_complete_count
    elif error.code is ErrorCode.NONE:
        result.start_offset = UNINITIALIZED_START_OFFSET
        result.delivery_complete_count = UNINITIALIZED_DELIVERY_COMPLETE_COUNT
    return result
