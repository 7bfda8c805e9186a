"""Kafka's TransactionMarkerChannelManager: writes the markers of a decided transaction, then its final record.

A marker is a control batch that ends a transaction on a partition that took part in it. `MarkerWriter` appends markers
to the partitions that this broker leads; the manager sends the others to their leaders (WriteTxnMarkers), and repeats
each failed marker until it is written: without its marker, an open transaction would stop readers of committed records
forever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode, KafkaError, code_of
from ....protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ....protocol.record_batch import ControlType, control_batch
from ....protocol.topic_partition import TopicPartition, TopicPartitionKey, indexes_by_topic
from ....storage.log_validator import COORDINATOR_RULES, EPOCH_PER_TRANSACTION, MARKER_RULES
from ...metadata.topic_names import GROUP_METADATA_TOPIC
from ...replication.append_request import AppendRequest, AppendResult
from ..inter_broker_sender import InterBrokerSender
from .transaction_metadata import ENDING, TransactionEntry, TransactionState
from .transaction_state_manager import TransactionStateManager

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.loop_sharing import SlicedWork
    from ...runtime.ports import SendRequest
    from ..group.group_coordinator import GroupCoordinator


logger = room_logger("transactions")

PARTITIONS_PER_REQUEST = 2000
"""Partitions, of all markers together, in one WriteTxnMarkers request: some milliseconds of work at either end."""
MARKERS_PER_TURN = 100
"""Markers that are written into partitions: each takes some tens of microseconds."""

RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 2.0
"""The first delay of a retry and the longest one: many transactions may wait for a partition without a leader."""

Written = Callable[[dict[TopicPartitionKey, ErrorCode]], None]
"""Receives the outcome of each partition once, perhaps in several calls."""


class TransactionMarker(NamedTuple):
    """The values of a control batch that ends a transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    """The transaction version of the producer; 0 in requests of older coordinators."""


class MarkerWriter:
    """The markers for partitions that this broker leads.

    Owned by the broker and used on the loop's thread only, by its transaction coordinator and by WriteTxnMarkers.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        group_coordinator: GroupCoordinator,
        now_ms: Callable[[], int],
        timeout_ms: Callable[[], int],
        sliced_work: SlicedWork,
    ) -> None:
        self._replicas = replica_manager
        self._group_coordinator = group_coordinator
        self._sliced_work = sliced_work
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms

    def write(self, marker: TransactionMarker, partitions: Iterable[TopicPartitionKey], written: Written) -> None:
        """Append a marker to each partition, in slices of the event loop; `written` gets all outcomes in one call."""
        self._write_on(marker, list(dict.fromkeys(partitions)), {}, written)

    def _write_on(
        self,
        marker: TransactionMarker,
        left: list[TopicPartitionKey],
        outcomes: dict[TopicPartitionKey, ErrorCode],
        written: Written,
    ) -> None:
        some = left[-MARKERS_PER_TURN:]
        del left[-MARKERS_PER_TURN:]

        def some_written(found: dict[TopicPartitionKey, ErrorCode]) -> None:
            outcomes.update(found)
            if left:
                self._sliced_work.run_later(partial(self._write_on, marker, left, outcomes, written))
            else:
                written(outcomes)

        self._replicas.run_in_turn(partial(self._write_some, marker, some, some_written))

    def _write_some(self, marker: TransactionMarker, partitions: list[TopicPartitionKey], written: Written) -> None:
        outcomes: dict[TopicPartitionKey, ErrorCode] = {}
        wanted: list[TopicPartitionKey] = []
        for partition in partitions:
            error = self._check_partition(partition)
            if error is ErrorCode.NONE:
                wanted.append(partition)
            else:
                outcomes[partition] = error
        if not wanted:
            written(outcomes)
            return

        def appended(results: list[AppendResult]) -> None:
            for partition, result in zip(wanted, results, strict=True):
                if isinstance(result, KafkaError):
                    outcomes[partition] = result.code
                else:
                    outcomes[partition] = self._complete_offsets(partition, marker)
            written(outcomes)

        for partition in wanted:
            self._replicas.verification_guards.end_transaction(partition, marker.producer_id, marker.producer_epoch)
        has_own_epoch = marker.transaction_version >= EPOCH_PER_TRANSACTION
        rules = MARKER_RULES if has_own_epoch else COORDINATOR_RULES
        batch = control_batch(
            ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._now_ms(),
        )
        self._replicas.append_records(
            [(*partition, memoryview(bytearray(batch))) for partition in wanted],
            AppendRequest(-1, self._timeout_ms(), appended, rules),
        )

    def _complete_offsets(self, partition: TopicPartitionKey, marker: TransactionMarker) -> ErrorCode:
        """Apply or drop the offsets of a transaction whose marker is durable in a partition.

        Return an error, after which the coordinator repeats the marker, if the partition is not loaded or its offsets
        could not be changed.
        """
        if partition[0] == GROUP_METADATA_TOPIC:
            try:
                self._group_coordinator.complete_transaction(
                    partition[1], marker.producer_id, is_commit=marker.is_commit
                )
            except KafkaError as error:
                return _COORDINATOR_ERRORS.get(error.code, error.code)
            except Exception:
                logger.exception("%s-%d: the offsets of a transaction could not be completed", *partition)
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _check_partition(self, partition: TopicPartitionKey) -> ErrorCode:
        """Return the error if no marker can be written to a partition, else NONE."""
        try:
            config = self._replicas.log_config(*partition)
            if partition[0] == GROUP_METADATA_TOPIC:
                self._group_coordinator.group_manager.check_partition_loaded(partition[1])
        except KafkaError as error:
            return _COORDINATOR_ERRORS.get(error.code, error.code)
        return ErrorCode.NONE if config.message_magic == 2 else ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


_COORDINATOR_ERRORS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""WriteTxnMarkers reports the errors of a group coordinator as NOT_LEADER_OR_FOLLOWER."""


class PendingMarker(NamedTuple):
    """A marker for partitions with one leader (Kafka: PendingCompleteTxnAndMarkerEntry)."""

    marker: TransactionMarker
    partitions: list[TopicPartitionKey]
    """The partitions, `PARTITIONS_PER_REQUEST` or fewer."""
    written: Written


class TransactionMarkerChannelManager:
    """The transactions that are decided and not complete.

    Owned by the transaction coordinator and used on the loop's thread only.
    """

    def __init__(
        self,
        state_manager: TransactionStateManager,
        marker_writer: MarkerWriter,
        metadata: MetadataCache,
        now_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        *,
        broker_id: int,
        send: SendRequest | None,
    ) -> None:
        """`send` sends a request to another broker; None for a single broker, which leads all partitions."""
        self._state_manager = state_manager
        self._marker_writer = marker_writer
        self._metadata = metadata
        self._now_ms = now_ms
        self._loop = loop
        self._broker_id = broker_id
        self._sender: InterBrokerSender[PendingMarker] | None = None
        if send is not None:
            self._sender = InterBrokerSender(send, loop, lowest=0, request=_request, answered=_on_response)

    async def close(self) -> None:
        """Stop sending markers."""
        if self._sender is not None:
            await self._sender.close()

    def add_markers_to_send(self, transaction: TransactionEntry) -> None:
        """Write the missing markers of a decided transaction, and complete it (Kafka: addTxnMarkersToSend)."""
        if transaction.is_unloaded or transaction.metadata.state not in ENDING:
            return
        if transaction.has_pending_transition:
            self._retry_later(0, self.add_markers_to_send, transaction)
        else:
            self._send_markers(transaction, transaction.metadata.partitions, 0)

    def _send_markers(
        self, transaction: TransactionEntry, partitions: frozenset[TopicPartitionKey], failures: int
    ) -> None:
        epoch = self._state_manager.get_coordinator_epoch(transaction.transactional_id)
        if transaction.is_unloaded:
            return
        if epoch is None:
            self._retry_later(0, self._send_markers, transaction, partitions, failures)
            return
        known = transaction.metadata
        existing = frozenset(partition for partition in partitions if self._metadata.has_partition(*partition))
        if len(existing) < len(partitions):
            self._remove_partitions(transaction, partitions - existing)  # their topics are deleted
        if existing:
            is_commit = known.state is TransactionState.PREPARE_COMMIT
            marker = TransactionMarker(known.producer_id, known.producer_epoch, is_commit, epoch, known.client_version)
            # Sorted: the order of a set of strings depends on the process, and a simulation must be repeatable.
            self._write_markers(marker, sorted(existing), partial(self._on_markers_written, transaction, failures))
        elif not partitions:
            # For example the abort of an empty transaction in transaction version 2 (KIP-890): no markers are needed.
            self._remove_partitions(transaction, partitions)

    def _write_markers(
        self, marker: TransactionMarker, partitions: Iterable[TopicPartitionKey], written: Written
    ) -> None:
        """Write a marker to partitions of any leader.

        LEADER_NOT_AVAILABLE for a partition without a leader, NETWORK_EXCEPTION if a leader does not respond.
        """
        if self._sender is None:
            self._marker_writer.write(marker, partitions, written)
            return
        by_leader: dict[int, list[TopicPartitionKey]] = {}
        for partition in partitions:
            image = self._metadata.partition(TopicPartition(*partition))
            by_leader.setdefault(-1 if image is None else image.leader, []).append(partition)
        for leader, led in by_leader.items():
            if leader == self._broker_id:
                self._marker_writer.write(marker, led, written)
            elif leader < 0:
                written(dict.fromkeys(led, ErrorCode.LEADER_NOT_AVAILABLE))
            else:
                for start in range(0, len(led), PARTITIONS_PER_REQUEST):
                    self._sender.add(
                        leader, PendingMarker(marker, led[start : start + PARTITIONS_PER_REQUEST], written)
                    )

    def _on_markers_written(
        self, transaction: TransactionEntry, failures: int, outcomes: dict[TopicPartitionKey, ErrorCode]
    ) -> None:
        failed = {partition: error for partition, error in outcomes.items() if error not in _FINAL_OUTCOMES}
        if failed:
            if not failures:
                names = ", ".join(sorted({error.name for error in failed.values()}))
                logger.info(
                    "transaction %s: markers could not be written, retrying: %s", transaction.transactional_id, names
                )
            self._retry_later(failures, self._send_markers, transaction, frozenset(failed), failures + 1)
        self._remove_partitions(transaction, outcomes.keys() - failed.keys())

    def _remove_partitions(self, transaction: TransactionEntry, partitions: AbstractSet[TopicPartitionKey]) -> None:
        """Remove partitions that need no marker any more; complete the transaction after the last one."""
        transaction.remove_partitions(partitions)
        if not transaction.metadata.partitions:
            completed = transaction.metadata.prepare_complete(self._now_ms())
            self._state_manager.append_transaction_to_log(
                transaction, completed, partial(self._on_completion_written, transaction)
            )

    def _on_completion_written(self, transaction: TransactionEntry, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            logger.info(
                "transaction %s: its completion could not be written; retrying: %s",
                transaction.transactional_id,
                error.name,
            )
            self._retry_later(0, self.add_markers_to_send, transaction)

    def _retry_later(
        self, failures: int, work: Callable[..., None], transaction: TransactionEntry, *rest: object
    ) -> None:
        if not transaction.is_unloaded:
            pause = min(RETRY_SECONDS * 2 ** min(failures, 10), MAX_RETRY_SECONDS)
            self._loop.call_later(pause, work, transaction, *rest)


def _request(waiting: deque[PendingMarker]) -> tuple[list[PendingMarker], WriteTxnMarkersRequest]:
    """Return the next markers, up to the limit of one request, and the request."""
    taken = [waiting.popleft()]
    room = PARTITIONS_PER_REQUEST - len(taken[0].partitions)
    while waiting and len(waiting[0].partitions) <= room:
        room -= len(waiting[0].partitions)
        taken.append(waiting.popleft())
    return taken, WriteTxnMarkersRequest(markers=[_writable_marker(one) for one in taken])


def _writable_marker(pending: PendingMarker) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=pending.marker.producer_id,
        producer_epoch=pending.marker.producer_epoch,
        transaction_result=pending.marker.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in indexes_by_topic(pending.partitions).items()
        ],
        coordinator_epoch=pending.marker.coordinator_epoch,
        transaction_version=pending.marker.transaction_version,
    )


def _on_response(sent: Sequence[PendingMarker], response: WriteTxnMarkersResponse | KafkaError) -> None:
    if isinstance(response, KafkaError):
        for one in sent:
            one.written(dict.fromkeys(one.partitions, ErrorCode.NETWORK_EXCEPTION))
        return
    outcomes = {
        (result.producer_id, topic.name, partition.partition_index): code_of(partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }
    for one in sent:
        producer_id = one.marker.producer_id
        one.written(
            {
                topic_partition: outcomes.get((producer_id, *topic_partition), ErrorCode.UNKNOWN_SERVER_ERROR)
                for topic_partition in one.partitions
            }
        )


_FINAL_OUTCOMES = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.INVALID_PRODUCER_EPOCH)
"""The outcomes after which a partition needs no marker: it has one, its log has the old message format and so no
records of transactions, or a newer epoch of the producer has its own transaction there."""
