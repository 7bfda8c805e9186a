"""How others read the partitions of this broker: fetches, which may wait, offsets by time, ends of epochs.

What waits, and what a failing disk means, is settled here: who reads gets a result for each partition, or the error
that its client is to be told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...storage.errors import CorruptIndexError, LogDirFailedError
from ..runtime.turns import FETCHED_PARTITIONS, LongWork, Steps, raise_error
from .delayed_fetch import (
    CONSUMER,
    AwaitedRead,
    DelayedFetch,
    FetchCallback,
    FetchedPartition,
    FetchParams,
    FetchResult,
    calls_for_answer,
)
from .partition import NO_LEADER, NO_LEADER_EPOCH, FetchIsolation, FoundOffset, Partition
from .postponed_appends import like
from .replica import FollowerFetch

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchPartition
    from ...storage.filesystem import Sendable
    from ...storage.leader_epochs import EpochEnd
    from ...storage.log_config import LogConfig
    from ...storage.producer_state import ProducerStateEntry
    from .delayed_operation import Purgatory
    from .hosted_partitions import HostedPartitions
    from .replica_selector import RackAwareReplicaSelector
    from .replication_throttle import LeaderThrottle

LONGEST_WAIT_MS = 300_000
"""No fetch waits longer than this, whatever the client asks for."""


class LongFetch:
    """A fetch of more partitions than are read in one turn, until it is answered."""

    __slots__ = ("is_cancelled", "waiting")

    def __init__(self) -> None:
        self.is_cancelled = False
        self.waiting: DelayedFetch | None = None
        """What waits, once everything has been read."""

    def cancel(self) -> None:
        """Give up without an answer, because nobody waits for it any more."""
        self.is_cancelled = True
        if self.waiting is not None:
            self.waiting.cancel()


class PartitionReader:
    """The reading half of Kafka's ReplicaManager. Loop-thread only."""

    def __init__(self, hosted: HostedPartitions, purgatory: Purgatory, long_work: LongWork) -> None:
        self._hosted = hosted
        self._partitions = hosted.by_name
        self._purgatory = purgatory
        self._long_work = long_work
        self.selector: RackAwareReplicaSelector | None = None
        """Sends consumers to replicas that are nearer, if that is wished for."""
        self.throttle: LeaderThrottle | None = None
        """Of followers that are not in sync."""

    def fetch_records(
        self, params: FetchParams, callback: FetchCallback, *, on_resume: Callable[[], None] | None = None
    ) -> DelayedFetch | LongFetch | None:
        """Read partitions that this broker leads; `callback` gets a result for each, in their order.

        That is before this returns if there is enough, or anything to tell, unless there are very many partitions. Else
        it returns what goes on, to be cancelled if the reader goes away; when the wait is over everything is read
        afresh, after `on_resume`. Kafka's ReplicaManager.fetchMessages.
        """
        if len(params.partitions) > FETCHED_PARTITIONS:
            fetch = LongFetch()

            def answer_or_wait(results: list[FetchResult], total: int) -> None:
                fetch.waiting = self._answer_or_wait(params, callback, on_resume, results, total, fetch=fetch)

            self._read_in_turns(params, answer_or_wait, fetch)
            return fetch
        return self._answer_or_wait(params, callback, on_resume, *self._read(params, params.partitions))

    def _answer_or_wait(
        self,
        params: FetchParams,
        callback: FetchCallback,
        on_resume: Callable[[], None] | None,
        results: list[FetchResult],
        total: int,
        *,
        fetch: LongFetch | None = None,
    ) -> DelayedFetch | None:
        """Call back, or wait until there is enough."""
        if params.max_wait_ms <= 0 or total >= params.min_bytes or not params.partitions or calls_for_answer(results):
            callback(results)
            return None
        reads = []
        for topic, wanted in params.partitions:
            partition = self._partitions.get((topic, wanted.partition))
            if partition is None:  # gone since it was read, in an earlier turn
                callback(results)
                return None
            if params.follower != CONSUMER and self._holds_back(partition, params.follower):
                continue  # what there is of it is no reason to answer
            reads.append(
                AwaitedRead(
                    partition,
                    wanted.fetch_offset,
                    wanted.partition_max_bytes,
                    partition.leader_epoch,
                    partition.is_leader,
                )
            )

        # Records are not held while more of them is waited for.
        former = None if total else results

        def respond() -> None:
            if on_resume is not None:
                on_resume()
            params.has_waited = True
            if fetch is not None:
                self._read_in_turns(params, lambda results, _: callback(results), fetch)
            else:
                callback(self._read(params, params.partitions, former=former)[0])

        waiting = DelayedFetch(reads, min_bytes=params.min_bytes, isolation=params.isolation, respond=respond)
        if not waiting.try_complete():
            keys = [read.partition.topic_partition for read in reads]
            self._purgatory.watch(waiting, keys, min(params.max_wait_ms, LONGEST_WAIT_MS))
        return waiting

    def _read_in_turns(
        self, params: FetchParams, done: Callable[[list[FetchResult], int], object], fetch: LongFetch
    ) -> None:
        """`_read` of very many partitions, others being served meanwhile; it ends early if nobody waits any more."""

        def steps() -> Steps[None]:
            results: list[FetchResult] = []
            total = 0
            for first in range(0, len(params.partitions), FETCHED_PARTITIONS):
                some, size = self._read(params, params.partitions[first : first + FETCHED_PARTITIONS], total)
                results += some
                total += size
                yield
                if fetch.is_cancelled:
                    return
            done(results, total)

        self._long_work.run(steps(), raise_error)

    def _read(
        self,
        params: FetchParams,
        partitions: Sequence[tuple[str, FetchPartition]],
        before: int = 0,
        former: Sequence[FetchResult] | None = None,
    ) -> tuple[list[FetchResult], int]:
        """Read these partitions in order within the limits, `before` being the bytes read before; tell how many it was.

        Of what was found in them when the request came, `former`, all counts that is still so.
        """
        budget, total, whole_batch = max(0, params.max_bytes - before), 0, not params.hard_limit and not before
        results: list[FetchResult] = []
        for position, (topic, wanted) in enumerate(partitions):
            if former is not None and self._is_still_so(former[position], topic, wanted, params.isolation):
                results.append(former[position])
                continue
            try:
                found = self._read_partition(
                    topic, wanted, params, min(wanted.partition_max_bytes, budget), whole_batch
                )
            except Exception as error:  # noqa: BLE001 - whatever one partition comes to, the others are served
                last = results[-1] if results else None
                results.append(like(last, self._hosted.answer_to(error, topic, wanted.partition)))
                continue
            results.append(found)
            size = len(found.records)
            if size:
                total += size
                budget = max(0, budget - size)
                whole_batch = False
        return results, total

    def _is_still_so(self, found: FetchResult, topic: str, wanted: FetchPartition, isolation: FetchIsolation) -> bool:
        """Whether there was nothing to read, and is nothing, and nothing else has happened that a reader is told."""
        partition = self._partitions.get((topic, wanted.partition))
        if isinstance(found, KafkaError) or partition is None or not partition.is_leader or partition.is_offline:
            return False
        log = partition.log
        return (
            wanted.fetch_offset == partition.read_bound(isolation)
            and wanted.current_leader_epoch in (partition.leader_epoch, NO_LEADER_EPOCH)
            and found.high_watermark == log.high_watermark
            and found.log_start_offset == log.log_start_offset
            and found.last_stable_offset == log.last_stable_offset
        )

    def _holds_back(self, partition: Partition, follower: int) -> bool:
        return self.throttle is not None and self.throttle.holds_back(partition, follower)

    def _read_partition(
        self, topic: str, wanted: FetchPartition, params: FetchParams, max_bytes: int, whole_batch: bool
    ) -> FetchedPartition:
        """Raises KafkaError for whatever is wrong with this partition."""
        partition = self._partitions.get((topic, wanted.partition))
        if partition is None or not partition.is_leader or partition.is_offline:
            if partition is None or partition.is_offline or not params.any_replica or partition.leader == NO_LEADER:
                raise self._hosted.not_led(topic, wanted.partition)
            partition.fence(wanted.current_leader_epoch)
        elif wanted.current_leader_epoch >= 0:
            partition.check_leader_epoch(wanted.current_leader_epoch)
        log = partition.log
        is_at_end = wanted.fetch_offset == log.log_end_offset
        if wanted.last_fetched_epoch >= 0 and not (
            is_at_end and wanted.last_fetched_epoch == log.leader_epochs.latest_epoch
        ):
            diverging = partition.divergence(wanted.last_fetched_epoch, wanted.fetch_offset)
            if diverging is not None:
                return FetchedPartition(
                    b"", log.high_watermark, log.last_stable_offset, log.log_start_offset, None, diverging
                )
        if params.follower != CONSUMER:
            if is_at_end:
                return self._sent_to_follower(partition, wanted, params, b"")
            if self._holds_back(partition, params.follower):
                max_bytes, whole_batch = 0, False
        if params.rack and self.selector is not None and partition.followers is not None:
            nearer = self.selector.preferred(partition, wanted.fetch_offset, params.rack, params.listener)
            if nearer is not None:
                ends = log.high_watermark, log.last_stable_offset, log.log_start_offset
                return FetchedPartition(b"", *ends, preferred_read_replica=nearer)
        try:
            found = partition.read(
                wanted.fetch_offset,
                max(0, max_bytes),
                min_one_batch=whole_batch,
                isolation=params.isolation,
                hard_limit=params.hard_limit,
                lend=params.lend,
            )
        except LogDirFailedError as error:
            raise self._hosted.storage_error(error) from error
        except CorruptIndexError as error:  # of transactions; the next start makes it anew
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if params.follower != CONSUMER:
            return self._sent_to_follower(partition, wanted, params, found.records)
        aborted = found.aborted_transactions
        return FetchedPartition(
            found.records, log.high_watermark, log.last_stable_offset, log.log_start_offset, aborted
        )

    def _sent_to_follower(
        self, partition: Partition, wanted: FetchPartition, params: FetchParams, records: Sendable
    ) -> FetchedPartition:
        """Note what a follower has by what it asks for; it hears of what that changes. Raises KafkaError.

        What it has is known since it came: after a wait it says nothing new.
        """
        log, throttle, fetch = partition.log, self.throttle, follower_fetch(wanted, params)
        replica = partition.follower(fetch) if params.has_waited else partition.follower_fetched(fetch)
        if throttle is not None and records:
            throttle.sent(partition, params.follower, len(records))
        high_watermark = log.high_watermark
        result = FetchedPartition(records, high_watermark, log.last_stable_offset, log.log_start_offset)
        # Consumers that read from it see a record only when it has heard that it is committed.
        result.is_news = self.selector is not None and replica.last_sent_high_watermark < high_watermark
        replica.last_sent_high_watermark = high_watermark
        return result

    def read_log(self, partition: Partition, offset: int, max_bytes: int) -> bytes | memoryview:
        """Batches from the one of `offset` on, committed or not; nothing at the log's end. For coordinators.

        Raises KafkaError.
        """
        try:
            return partition.log.read(offset, max_bytes, min_one_message=True).data
        except LogDirFailedError as error:
            raise self._hosted.storage_error(error) from error

    def fetch_offset_for_timestamp(
        self, topic: str, index: int, timestamp: int, *, isolation: FetchIsolation, current_leader_epoch: int = -1
    ) -> FoundOffset:
        """`Partition.fetch_offset_for_timestamp` of a partition that this broker leads. Raises KafkaError."""
        with self._hosted.answering(topic, index):
            partition = self._led(topic, index, current_leader_epoch)
            return partition.fetch_offset_for_timestamp(timestamp, isolation)

    def legacy_fetch_offsets_for_timestamp(
        self, topic: str, index: int, timestamp: int, *, isolation: FetchIsolation, max_num_offsets: int
    ) -> list[int]:
        """`Partition.legacy_fetch_offsets_for_timestamp` of a partition that this broker leads. Raises KafkaError."""
        with self._hosted.answering(topic, index):
            partition = self._hosted.led(topic, index)
            return partition.legacy_fetch_offsets_for_timestamp(timestamp, isolation, max_num_offsets)

    def last_offset_for_leader_epoch(
        self, topic: str, index: int, leader_epoch: int, *, current_leader_epoch: int
    ) -> EpochEnd:
        """Where a leader epoch ends in a partition that this broker leads: `Partition.end_offset_for_epoch`.

        Raises KafkaError.
        """
        with self._hosted.answering(topic, index):
            return self._led(topic, index, current_leader_epoch).end_offset_for_epoch(leader_epoch)

    def active_producers(self, topic: str, index: int) -> Mapping[int, ProducerStateEntry]:
        """The idempotent and transactional producers that a partition knows, by their ids. Raises KafkaError."""
        with self._hosted.answering(topic, index):
            return self._hosted.led(topic, index).log.producer_state.producers

    def log_config(self, topic: str, index: int) -> LogConfig:
        """How a partition that this broker leads is kept. Raises KafkaError."""
        return self._hosted.led(topic, index).log.config

    def _led(self, topic: str, index: int, current_leader_epoch: int) -> Partition:
        """A partition that this broker leads, in the epoch that the client believes in. Raises KafkaError."""
        partition = self._hosted.led(topic, index)
        partition.check_leader_epoch(current_leader_epoch)
        return partition


def follower_fetch(wanted: FetchPartition, params: FetchParams) -> FollowerFetch:
    """What a follower says by asking for this."""
    return FollowerFetch(
        params.follower,
        params.follower_epoch,
        wanted.fetch_offset,
        wanted.log_start_offset,
        wanted.current_leader_epoch >= 0,
    )
