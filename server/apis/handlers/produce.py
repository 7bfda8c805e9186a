"""Produce (key 0): appends to partitions that this broker leads. With acks -1 the response waits for the commit.

At `flush.messages` acks 1 waits for the flush, too. Versions 0-2 have messages of formats 0 and 1, and several of them
per partition; 3 (KIP-98) requires exactly one record batch per partition; 10 returns the current leader after
NOT_LEADER_OR_FOLLOWER (KIP-951); 11 has TRANSACTION_ABORTABLE, 12 adds the partitions to the producer's transaction
(KIP-890); 13 names topics by id (KIP-516). There is no response to acks 0: if a partition fails the connection is
closed, the only way to report the error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ....protocol.apis import API_MESSAGES, ApiKey
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
)
from ....protocol.produce_entries import SINCE_TOPIC_IDS, CompactProduceResponse, EntryKey, ProduceEntries, response_of
from ....protocol.sequence_gap_guard import SequenceGapGuard
from ....storage.log_validator import AppendRules, RecordValidationError
from ...coordinator.transaction.add_partitions_to_txn_manager import TransactionSupportedOperation
from ...replication.append_request import AppendCallback, AppendEntry, AppendRequest, AppendResult
from ...runtime.loop_sharing import SlicedWork, Steps
from ..leader_hints import LeaderHints
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...coordinator.transaction.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.append_request import SuspendedAppend
    from ...replication.replica_manager import ReplicaManager

ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that Kafka allows to write to internal topics."""
SINCE_LEADER_HINTS = 10
FIRST_ABORTABLE_VERSION = 11
RULES_BY_VERSION = [
    AppendRules(requires_single_v2_batch=version >= 3, allows_zstd=version >= 7, raises_if_heavy=True)
    for version in range(API_MESSAGES[ApiKey.PRODUCE].versions[1] + 1)
]


def handle(
    ctx: RequestContext,
    request: ProduceEntries,
    *,
    fault: Callable[[str], bool],
    sliced_work: SlicedWork,
    metadata_cache: MetadataCache,
    replica_manager: ReplicaManager,
    add_partitions_to_txn_manager: AddPartitionsToTxnManager,
) -> None:
    """Append to each partition on its own.

    Returns before the response: `ReplicaManager` calls back with the results, without a task per request.
    """
    produce = PendingProduce(ctx, request, metadata_cache, fault, sliced_work)
    if request.transactional_id is not None:
        _in_transaction(ctx, request, produce, add_partitions_to_txn_manager, replica_manager)
        return
    append = AppendRequest(
        request.acks,
        request.timeout_ms,
        produce.respond,
        RULES_BY_VERSION[ctx.api_version],
        ctx.client_id == ADMIN_CLIENT_ID,
    )
    _keep_memory(ctx, replica_manager.append_records(produce.entries(request, replica_manager), append))


def _keep_memory(ctx: RequestContext, suspended: SuspendedAppend | None) -> None:
    """Count the memory of the request until its remaining records are appended."""
    if suspended is not None:
        assert suspended.has_entries, "it continues in a later turn"
        suspended.release_memory = ctx.channel.keep_memory()


def _in_transaction(
    ctx: RequestContext,
    request: ProduceEntries,
    produce: PendingProduce,
    add_partitions_to_txn_manager: AddPartitionsToTxnManager,
    replica_manager: ReplicaManager,
) -> None:
    """Append once the partitions are part of the producer's transaction."""

    def append(entries: list[AppendEntry], callback: AppendCallback) -> None:
        append_request = AppendRequest(
            request.acks,
            request.timeout_ms,
            callback,
            RULES_BY_VERSION[ctx.api_version],
            ctx.client_id == ADMIN_CLIENT_ID,
        )
        append_request.has_transactional_id = True
        _keep_memory(ctx, replica_manager.append_records(entries, append_request))

    supported_operation = TransactionSupportedOperation.for_version(ctx.api_version, FIRST_ABORTABLE_VERSION)
    entries = produce.entries(request, replica_manager)
    add_partitions_to_txn_manager.handle_produce_append(
        request.transactional_id or "", supported_operation, entries, append, produce.respond
    )


class PendingProduce(CompactProduceResponse):
    """The state of one produce request. It is also its response if no partition fails, which saves an object.

    It does not keep the request's records, which are in a shared buffer.
    """

    __slots__ = ("_acks", "_ctx", "_fault", "_metadata", "_refused", "_sliced_work")

    def __init__(
        self,
        ctx: RequestContext,
        request: ProduceEntries,
        metadata_cache: MetadataCache,
        fault: Callable[[str], bool],
        sliced_work: SlicedWork,
    ) -> None:
        self.keys = request.keys
        self.throttle_time_ms = 0
        self._ctx = ctx
        self._acks = request.acks
        self._sliced_work = sliced_work
        self._metadata = metadata_cache
        self._fault = fault
        self._refused: dict[int, KafkaError] = {}
        """The errors of partitions that are not appended, by their positions."""

    def entries(self, request: ProduceEntries, replica_manager: ReplicaManager) -> list[AppendEntry]:
        """Return the entries to append, with topic names in place of ids."""
        guard = self._ctx.channel.session.sequence_gap_guard
        by_id = self._ctx.api_version >= SINCE_TOPIC_IDS
        if not by_id and not guard:
            return request.entries
        entries: list[AppendEntry] = []
        names = self._metadata.names
        for position, (topic, index, records) in enumerate(request.entries):
            name = names.get(topic) if by_id else topic
            if name is None:
                self._refused[position] = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
                continue
            if guard and (gap := self._gap(name, (topic, index), records, replica_manager)) is not None:
                self._refused[position] = gap
                continue
            entries.append((name, index, records))
        return entries

    def _gap(self, name: str, key: EntryKey, records: memoryview, replica_manager: ReplicaManager) -> KafkaError | None:
        """Return the error for records after a refused batch, if any. Errors of the partition occur in the append."""
        guard = self._ctx.channel.session.sequence_gap_guard
        with suppress(KafkaError):
            return guard.gap(key, records, replica_manager.active_producers(name, key[1])) if guard else None
        return None

    def respond(self, results: list[AppendResult]) -> None:
        """Respond with the results of the entries."""
        if self._refused:
            appended = iter(results)
            results = [self._refused.get(position) or next(appended) for position in range(len(self.keys))]
        failed = False
        for result in results:
            if isinstance(result, KafkaError):
                failed = True
        ctx = self._ctx
        if self._acks == 0:
            if failed:
                ctx.close()
            else:
                ctx.respond(None)
        elif self._fault("produce-answer-lost"):
            ctx.close()
        else:
            if failed or ctx.denied:
                self._sliced_work.run(self._response(results), ctx.finish)
            else:
                if guard := ctx.channel.session.sequence_gap_guard:
                    # The rejected batch was sent again: later requests may be appended jointly.
                    for key in self.keys:
                        guard.record_result(key, None)
                self.results = results
                ctx.respond(self)

    def _response(self, results: list[AppendResult]) -> Steps[ProduceResponse]:
        """Build the response with errors."""
        answers = []
        session = self._ctx.session
        guard = session.sequence_gap_guard = session.sequence_gap_guard or SequenceGapGuard()
        for key, result in zip(self.keys, results, strict=True):
            error = guard.record_result(key, result if isinstance(result, KafkaError) else None)
            answers.append(self._answer(key[1], error or result))
            yield
        response = response_of(self.keys, answers)
        if self._ctx.api_version >= SINCE_LEADER_HINTS:
            hints = LeaderHints(self._metadata, self._ctx.listener.name)
            for (topic, index), answer in zip(self.keys, answers, strict=True):
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and (name := self._name(topic)) is not None:
                    answer.current_leader = hints.leader(name, index, LeaderIdAndEpoch)
            response.node_endpoints = hints.endpoints(NodeEndpoint)
        return response

    def _answer(self, index: int, result: AppendResult) -> PartitionProduceResponse:
        """Return the response of one partition: for an error with the invalid records, if known (KIP-467)."""
        if not isinstance(result, KafkaError):
            return PartitionProduceResponse(
                index=index,
                base_offset=result.first_offset,
                log_append_time_ms=result.log_append_time,
                log_start_offset=result.log_start_offset,
            )
        faults = result.record_errors if isinstance(result, RecordValidationError) else ()
        return PartitionProduceResponse(
            index=index,
            error_code=result.code,
            error_message=result.message or None,
            base_offset=-1,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
                for batch_index, message in faults
            ],
        )

    def _name(self, topic: str | bytes) -> str | None:
        return topic if isinstance(topic, str) else self._metadata.names.get(topic)
