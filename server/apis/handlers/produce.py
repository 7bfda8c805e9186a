"""Produce (key 0): append to partitions this broker leads; answer at once, or with acks=-1 when all is committed.

Where `flush.messages` is reached acks=1 waits for the flush. Versions 0-2 may carry messages of format 0 and 1 and
several of them; 3 (KIP-98) wants exactly one record batch a partition; 10 tells who leads if this broker does not
(KIP-951); 13 names topics by id (KIP-516). acks=0 gets no answer; if any of its partitions fails the connection is
closed, which is the only way to tell the client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ....storage.record_validator import RecordValidationError
from ...replication.delayed_produce import AppendResult
from ...replication.replica_manager import AppendEntry
from ..leader_hints import LeaderHints
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.replica_manager import ReplicaManager

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that Kafka lets write to internal topics."""
SINCE_LEADER_HINTS = 10
SINCE_TOPIC_IDS = 13
NO_RECORDS = memoryview(b"")


def handle(
    ctx: RequestContext,
    request: ProduceRequest,
    *,
    fault: Callable[[str], bool],
    metadata: MetadataCache,
    replica_manager: ReplicaManager,
) -> None:
    """Append everything, each partition succeeding or failing on its own."""
    produce = _Produce(ctx, request.acks, metadata, fault)
    replica_manager.append_records(
        produce.entries(request),
        request.acks,
        request.timeout_ms,
        produce.respond,
        produce_version=ctx.api_version,
        internal_topics_allowed=ctx.client_id == ADMIN_CLIENT_ID,
    )


class _Produce:
    """One request while it is served. It does not keep the request itself, whose records are in a shared buffer."""

    __slots__ = ("_acks", "_answers", "_ctx", "_failed", "_fault", "_metadata", "_topics")

    def __init__(self, ctx: RequestContext, acks: int, metadata: MetadataCache, fault: Callable[[str], bool]) -> None:
        self._ctx = ctx
        self._acks = acks
        self._metadata = metadata
        self._fault = fault
        self._topics: list[TopicProduceResponse] = []
        self._answers: list[PartitionProduceResponse] = []
        """Those that get a result, in the order of the entries."""
        self._failed = False

    def entries(self, request: ProduceRequest) -> list[AppendEntry]:
        """What is to be appended where."""
        entries: list[AppendEntry] = []
        by_id = self._ctx.api_version >= SINCE_TOPIC_IDS
        for topic in request.topic_data:
            name = self._metadata.topic_name(topic.topic_id) if by_id else topic.name
            partitions = []
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index, base_offset=-1)
                partitions.append(answer)
                if name is None:
                    self._refuse(answer, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id"))
                else:
                    records = data.records
                    entries.append((name, data.index, records if isinstance(records, memoryview) else NO_RECORDS))
                    self._answers.append(answer)
            self._topics.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
            )
        return entries

    def respond(self, results: list[AppendResult]) -> None:
        """Answer with what became of the entries."""
        for answer, result in zip(self._answers, results, strict=True):
            if isinstance(result, KafkaError):
                self._refuse(answer, result)
            else:
                answer.base_offset = result.first_offset
                answer.log_append_time_ms = result.log_append_time_ms
                answer.log_start_offset = result.log_start_offset
        ctx = self._ctx
        if self._acks == 0:
            if self._failed:
                ctx.close()
            else:
                ctx.respond(None)
        elif self._fault("produce-answer-lost"):
            ctx.close()
        else:
            response = ProduceResponse(responses=self._topics)
            if self._failed and ctx.api_version >= SINCE_LEADER_HINTS:
                self._name_leaders(response)
            ctx.respond(response)

    def _refuse(self, answer: PartitionProduceResponse, error: KafkaError) -> None:
        """Make it one partition's error, with the records at fault where they are known (KIP-467)."""
        self._failed = True
        answer.error_code = error.code
        answer.error_message = error.message or None
        if isinstance(error, RecordValidationError):
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
                for batch_index, message in error.record_errors
            ]

    def _name_leaders(self, response: ProduceResponse) -> None:
        """Name the present leader of every partition that this broker does not lead."""
        hints = LeaderHints(self._metadata, self._ctx.listener.name)
        by_id = self._ctx.api_version >= SINCE_TOPIC_IDS
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    name = self._metadata.topic_name(topic.topic_id) if by_id else topic.name
                    if name is not None:
                        answer.current_leader = hints.leader(name, answer.index, LeaderIdAndEpoch)
        response.node_endpoints = hints.endpoints(NodeEndpoint)
