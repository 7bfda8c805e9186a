"""Produce (key 0): append to partitions this broker leads; answer at once, or with acks=-1 when all is committed.

Where `flush.messages` is reached acks=1 waits for the flush. Versions 0-2 may carry messages of format 0 and 1 and
several of them; 3 (KIP-98) wants exactly one record batch a partition; 10 tells who leads if this broker does not
(KIP-951); 11 knows TRANSACTION_ABORTABLE, 12 adds the partitions to the producer's transaction (KIP-890); 13 names
topics by id (KIP-516). acks=0 gets no answer; if any of its partitions fails the connection is closed, which is the
only way to tell the client.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
)
from ....protocol.produce_entries import SINCE_TOPIC_IDS, AllAppended, Place, ProduceEntries, response_of
from ....protocol.refused_before import RefusedBefore
from ....storage.record_validator import RecordValidationError
from ...coordinator.transaction.enlistment import Manner
from ...replication.delayed_produce import AppendCallback, AppendResult
from ...replication.postponed_appends import AppendEntry
from ...runtime.turns import LongWork, Steps
from ..leader_hints import LeaderHints
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...coordinator.transaction.enlistment import Enlistment
    from ..ports import ClusterMetadata, Replicas

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that Kafka lets write to internal topics."""
SINCE_LEADER_HINTS = 10
FIRST_ABORTABLE_VERSION = 11


def handle(
    ctx: RequestContext,
    request: ProduceEntries,
    *,
    fault: Callable[[str], bool],
    long_work: LongWork,
    metadata: ClusterMetadata,
    replica_manager: Replicas,
    enlistment: Enlistment,
) -> None:
    """Append everything, each partition succeeding or failing on its own."""
    produce = _Produce(ctx, request, metadata, fault, long_work)
    if request.transactional_id is not None:
        _in_transaction(ctx, request, produce, enlistment, replica_manager)
        return
    replica_manager.append_records(
        produce.entries(request, replica_manager),
        request.acks,
        request.timeout_ms,
        produce.respond,
        produce_version=ctx.api_version,
        internal_topics_allowed=ctx.client_id == ADMIN_CLIENT_ID,
    )


def _in_transaction(
    ctx: RequestContext,
    request: ProduceEntries,
    produce: _Produce,
    enlistment: Enlistment,
    replica_manager: Replicas,
) -> None:
    """Append once the partitions are part of the producer's transaction."""

    def append(entries: list[AppendEntry], callback: AppendCallback) -> None:
        replica_manager.append_records(
            entries,
            request.acks,
            request.timeout_ms,
            callback,
            produce_version=ctx.api_version,
            internal_topics_allowed=ctx.client_id == ADMIN_CLIENT_ID,
            in_transaction=True,
        )

    manner = Manner.of(ctx.api_version, FIRST_ABORTABLE_VERSION)
    entries = produce.entries(request, replica_manager)
    enlistment.produce(request.transactional_id or "", manner, entries, append, produce.respond)


class _Produce(AllAppended):
    """One request while it is served, and then the answer, if all of it went well.

    It does not keep the request's records, which are in a shared buffer.
    """

    __slots__ = ("_acks", "_ctx", "_fault", "_long_work", "_metadata", "_refused")

    def __init__(
        self,
        ctx: RequestContext,
        request: ProduceEntries,
        metadata: ClusterMetadata,
        fault: Callable[[str], bool],
        long_work: LongWork,
    ) -> None:
        self.places = request.places
        self.throttle_time_ms = 0
        self._ctx = ctx
        self._acks = request.acks
        self._long_work = long_work
        self._metadata = metadata
        self._fault = fault
        self._refused: dict[int, KafkaError] = {}
        """Why nothing is to be appended, by the positions of the places."""

    def entries(self, request: ProduceEntries, replica_manager: Replicas) -> list[AppendEntry]:
        """What is to be appended where, by the names of topics."""
        before = self._ctx.channel.session.refused_before
        by_id = self._ctx.api_version >= SINCE_TOPIC_IDS
        if not by_id and not before:
            return request.entries
        entries: list[AppendEntry] = []
        names = self._metadata.names
        for position, (topic, index, records) in enumerate(request.entries):
            name = names.get(topic) if by_id else topic
            if name is None:
                self._refused[position] = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
                continue
            if before and (gap := self._gap(name, (topic, index), records, replica_manager)) is not None:
                self._refused[position] = gap
                continue
            entries.append((name, index, records))
        return entries

    def _gap(self, name: str, place: Place, records: memoryview, replica_manager: Replicas) -> KafkaError | None:
        """Why records behind refused ones are refused, too; what is wrong with a partition is found by appending."""
        before = self._ctx.channel.session.refused_before
        with suppress(KafkaError):
            return before.gap(place, records, replica_manager.active_producers(name, place[1])) if before else None
        return None

    def respond(self, results: list[AppendResult]) -> None:
        """Answer with what became of the entries."""
        if self._refused:
            appended = iter(results)
            results = [self._refused.get(position) or next(appended) for position in range(len(self.places))]
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
            if failed or ctx.refusals:
                self._long_work.run(self._response(results), ctx.finish)
            else:
                self.results = results
                ctx.respond(self)

    def _response(self, results: list[AppendResult]) -> Steps[ProduceResponse]:
        """The answer if not all of it went well."""
        answers = []
        session = self._ctx.session
        before = session.refused_before = session.refused_before or RefusedBefore()
        for place, result in zip(self.places, results, strict=True):
            error = before.heard(place, result if isinstance(result, KafkaError) else None)
            answers.append(self._answer(place[1], error or result))
            yield
        response = response_of(self.places, answers)
        if self._ctx.api_version >= SINCE_LEADER_HINTS:
            hints = LeaderHints(self._metadata, self._ctx.listener.name)
            for (topic, index), answer in zip(self.places, answers, strict=True):
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and (name := self._name(topic)) is not None:
                    answer.current_leader = hints.leader(name, index, LeaderIdAndEpoch)
            response.node_endpoints = hints.endpoints(NodeEndpoint)
        return response

    def _answer(self, index: int, result: AppendResult) -> PartitionProduceResponse:
        """One partition's answer; of an error with the records at fault where they are known (KIP-467)."""
        if not isinstance(result, KafkaError):
            return PartitionProduceResponse(
                index=index,
                base_offset=result.first_offset,
                log_append_time_ms=result.log_append_time_ms,
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
