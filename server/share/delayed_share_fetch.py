"""Kafka's ShareFetch and DelayedShareFetch: the acquisition of records for one request, and its wait for records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...storage.errors import LogDirFailedError
from ..replication.delayed_operation import DelayedOperation
from .log_batches import read_batches, slice_of
from .share_partition import AcquiredRecords

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicIdPartition
    from ...storage.filesystem import Sendable
    from ...storage.log_values import FetchIsolation
    from ...storage.transaction_index import AbortedTxn
    from ..replication.replica_manager import ReplicaManager
    from ..runtime.loop_sharing import SlicedWork, Steps
    from .log_batches import LogBatch
    from .managed_share_partition import ManagedSharePartition
    from .record_state import AcquireMode
    from .share_group_metrics import ShareGroupMetrics


def nothing() -> None:
    """Do nothing, for a request without quotas."""


def always() -> bool:
    """Return true, for a fetch without a session."""
    return True


@dataclass(slots=True)
class ShareFetch:
    """The partitions and the limits of one ShareFetch request."""

    group_id: str
    member_id: str
    partitions: Sequence[TopicIdPartition]
    """The partitions in the order in which they are served."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    acquire_mode: AcquireMode
    isolation: FetchIsolation
    on_resume: Callable[[], None] = nothing
    """Called when work of the fetch begins in a turn of the loop that is not the request's."""
    on_pause: Callable[[], None] = nothing
    """Called before work of the fetch may end for a turn."""
    is_session_open: Callable[[], bool] = always
    """Returns whether the share session has not ended."""
    errors: dict[TopicIdPartition, KafkaError] = field(default_factory=dict)

    @property
    def may_acquire(self) -> bool:
        """Whether the limits allow the acquisition of records."""
        return bool(self.partitions) and self.max_records > 0 and self.max_bytes > 0


class ShareFetchedRecords(NamedTuple):
    """The records of one partition, from the batch of the first acquired record on."""

    records: Sendable
    acquired: list[AcquiredRecords]


ShareFetchResult = ShareFetchedRecords | KafkaError
NO_RECORDS = ShareFetchedRecords(b"", [])


class DelayedShareFetch(DelayedOperation):
    """A share fetch that waits until its partitions have `min_bytes` of acquirable records, or one of them fails.

    A session may have thousands of partitions: they are checked, and their records acquired, in slices of the loop's
    turns. With few partitions the records are acquired in the turn in which the condition holds, so that the next fetch
    that is checked does not complete for the same records.
    """

    __slots__ = (
        "_begun",
        "_fetch",
        "_is_checking",
        "_metrics",
        "_must_check_again",
        "_partitions",
        "_replica_manager",
        "_respond",
        "_sliced_work",
        "has_waited",
    )

    def __init__(
        self,
        fetch: ShareFetch,
        partitions: Sequence[ManagedSharePartition],
        *,
        replica_manager: ReplicaManager,
        sliced_work: SlicedWork,
        metrics: ShareGroupMetrics,
        respond: Callable[[dict[TopicIdPartition, ShareFetchResult]], None],
    ) -> None:
        super().__init__()
        self._sliced_work = sliced_work
        self._is_checking = False
        self._must_check_again = False
        self.has_waited = False
        """Whether the turn of the request has ended."""
        self._fetch = fetch
        self._partitions = partitions
        self._replica_manager = replica_manager
        self._begun = replica_manager.loop_time()
        self._metrics = metrics
        self._respond = respond

    def try_complete(self) -> bool:
        """Complete if the condition holds. Many partitions are checked in slices, perhaps after this returns False."""
        if self._is_checking:
            self._must_check_again = True
            return False
        self._is_checking = True
        self._sliced_work.run(self._check_steps(), self._checked)
        return self.is_completed

    def _check_steps(self) -> Steps[bool]:
        """Return whether the condition holds, one partition per step."""
        if self._fetch.errors and len(self._fetch.errors) == len(self._fetch.partitions):
            return True
        available, is_acquirable = 0, False
        most = self._partition_max_bytes(len(self._partitions))
        for managed in self._partitions:
            share = managed.share
            if not managed.is_led or (managed.error is not None and not share.is_active):
                return True
            if share.is_active and share.can_acquire_records():
                is_acquirable = True
                partition = managed.partition
                bound = partition.read_bound(self._fetch.isolation)
                offset = share.next_fetch_offset()
                if offset < partition.log_start_offset or (offset < bound and self._fetch.min_bytes <= 1):
                    return True
                if offset < bound:
                    try:
                        available += min(partition.bytes_between(offset, bound), most)
                    except (KafkaError, LogDirFailedError):  # the response reports it
                        return True
            yield
            if self.is_completed:
                return False
        return is_acquirable and available >= self._fetch.min_bytes

    def _checked(self, is_complete: bool | None, error: Exception | None) -> None:
        self._is_checking = False
        if error is not None:
            raise error
        if is_complete:
            self.force_complete()
        elif self._must_check_again and not self.is_completed:
            self._must_check_again = False
            self.try_complete()

    def _partition_max_bytes(self, count: int) -> int:
        """Return the bytes of one of `count` partitions, all with an equal part (Kafka: PartitionMaxBytesStrategy)."""
        return max(1, self._fetch.max_bytes // max(1, count))

    def on_expiration(self) -> None:
        self._metrics.expired_fetches += 1

    def on_complete(self) -> None:
        """Acquire and respond, in this turn if one slice is enough."""
        if self.has_waited:
            self._fetch.on_resume()
        self._sliced_work.run(self._acquire_steps(), self._acquired)

    def _acquire_steps(self) -> Steps[dict[TopicIdPartition, ShareFetchResult]]:
        """Acquire records until the limits of the fetch are reached, one partition per step."""
        fetch = self._fetch
        results: dict[TopicIdPartition, ShareFetchResult] = dict(fetch.errors)
        acquirable: list[ManagedSharePartition] = []
        for managed in self._partitions:
            error = self._error(managed)
            if error is not None:
                results[managed.topic_id_partition] = error
            elif managed.share.is_active and managed.share.can_acquire_records():
                acquirable.append(managed)
            yield from self._next_step()
        self._metrics.record_fetch(
            fetch.group_id,
            seconds=self._replica_manager.loop_time() - self._begun,
            partitions=len(fetch.partitions),
            acquirable=len(acquirable),
        )
        most, left, max_records = self._partition_max_bytes(len(acquirable)), fetch.max_bytes, fetch.max_records
        for managed in acquirable:
            # If the session ended in an earlier turn, nothing would release the records before their locks expire.
            if max_records <= 0 or left <= 0 or not fetch.is_session_open():
                break
            if not managed.is_led or not managed.share.is_active:
                continue
            try:
                found = self._acquire(managed, min(most, left), max_records, is_first=left == fetch.max_bytes)
            except Exception as error:  # noqa: BLE001 - a fault in one partition must not affect the others
                topic, index = managed.topic_id_partition.topic_partition
                failure = KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) if _is_damage(error) else error
                results[managed.topic_id_partition] = self._replica_manager.partition_error(failure, topic, index)
            else:
                results[managed.topic_id_partition] = found
                left = max(0, left - len(found.records))
                max_records -= sum(last - first + 1 for first, last, _ in found.acquired)
            yield from self._next_step()
        return results

    def _next_step(self) -> Steps[None]:
        """Yield, with the time of another turn left out of the request's time."""
        self._fetch.on_pause()
        yield
        self._fetch.on_resume()

    def _acquired(self, results: dict[TopicIdPartition, ShareFetchResult] | None, error: Exception | None) -> None:
        if error is not None or results is None:
            # Without a response the request would never end.
            self._respond(dict.fromkeys(self._fetch.partitions, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)))
            raise error or AssertionError("no results")
        if any(isinstance(result, KafkaError) for result in results.values()):
            self._metrics.failed_fetch_requests += 1
        self._respond(results)

    def _error(self, managed: ManagedSharePartition) -> KafkaError | None:
        """Return the error of a partition whose state could not be read or that this broker does not lead."""
        if managed.error is not None:
            return managed.error
        if managed.is_led:
            return None
        try:
            self._replica_manager.get_leader_partition(*managed.topic_id_partition.topic_partition)
        except KafkaError as error:
            return error.as_result()
        return None

    def _acquire(
        self, managed: ManagedSharePartition, max_bytes: int, max_records: int, *, is_first: bool
    ) -> ShareFetchedRecords:
        """Read and acquire records of one partition. Raises KafkaError and other errors of the read."""
        fetch, share, partition = self._fetch, managed.share, managed.partition
        offset = share.next_fetch_offset()
        if offset < partition.log_start_offset:
            share.update_cache_and_offsets(partition.log_start_offset)
            offset = share.next_fetch_offset()
        if offset >= partition.read_bound(fetch.isolation):
            return NO_RECORDS
        try:
            found = partition.read(
                offset, max_bytes, min_one_batch=is_first, isolation=fetch.isolation, as_file_slice=True
            )
        except LogDirFailedError as error:
            self._replica_manager.log_failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        # The read has up to `max_bytes`, and reading the headers of all its batches took most of the time of a fetch.
        batches = read_batches(found.records, end_offset=share.end_offset, max_records=max_records)
        if not batches:
            return NO_RECORDS
        before = share.redeliveries
        aborted: Sequence[AbortedTxn] = found.aborted_transactions or ()
        acquired = share.acquire(
            fetch.member_id,
            fetch.acquire_mode,
            batch_size=fetch.batch_size,
            max_records=max_records,
            fetch_offset=offset,
            batches=[one.batch for one in batches],
            aborted=aborted,
            now=self._replica_manager.loop_time(),
        )
        if not acquired:
            return NO_RECORDS
        managed.set_timer()
        self._metrics.redelivered_records += share.redeliveries - before
        for first, last, delivery_count in acquired:
            if delivery_count == 1:
                self._metrics.in_flight_batch_message_count.update(last - first + 1)
        self._metrics.acquired_records += sum(last - first + 1 for first, last, _ in acquired)
        return ShareFetchedRecords(_acquired_part(found.records, batches, acquired), acquired)


def _is_damage(error: Exception) -> bool:
    """Whether the batches of the log could not be decoded."""
    return isinstance(error, ProtocolError)


def _acquired_part(records: Sendable, batches: list[LogBatch], acquired: list[AcquiredRecords]) -> Sendable:
    """Return the records from the batch with the first acquired offset to the batch with the last one."""
    first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
    first = next((one for one in batches if one.batch.last_offset >= first_offset), batches[-1])
    last = next((one for one in reversed(batches) if one.batch.base_offset <= last_offset), first)
    return slice_of(records, first, last)
