"""Produce (key 0): append to partitions this broker leads; answer at once, or with acks=-1 when all is committed.

Versions 0-2 may carry messages of format 0 and 1 and several of them; 3 (KIP-98) wants exactly one record batch a
partition; 10 tells who leads if this broker does not (KIP-951); 13 names topics by id (KIP-516). acks=0 gets no answer;
if any of its partitions fails the connection is closed, which is the only way to tell the client.
"""

from __future__ import annotations

from functools import partial

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

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that Kafka lets write to internal topics."""
SINCE_LEADER_HINTS = 10
SINCE_TOPIC_IDS = 13
NO_RECORDS = memoryview(b"")


def handle(ctx: RequestContext, request: ProduceRequest) -> None:
    """Append everything, each partition succeeding or failing on its own."""
    version = ctx.api_version
    response = ProduceResponse()
    entries: list[AppendEntry] = []
    answers: list[PartitionProduceResponse] = []
    for topic in request.topic_data:
        name = ctx.broker.metadata.topic_name(topic.topic_id) if version >= SINCE_TOPIC_IDS else topic.name
        partitions = []
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            partitions.append(answer)
            if name is None:
                _refuse(answer, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id"))
            else:
                records = data.records
                entries.append((name, data.index, records if isinstance(records, memoryview) else NO_RECORDS))
                answers.append(answer)
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
        )
    ctx.broker.replica_manager.append_records(
        entries,
        request.acks,
        request.timeout_ms,
        partial(_appended, ctx, request.acks, response, answers),
        produce_version=version,
        internal_topics_allowed=ctx.client_id == ADMIN_CLIENT_ID,
    )


def _appended(
    ctx: RequestContext,
    acks: int,
    response: ProduceResponse,
    answers: list[PartitionProduceResponse],
    results: list[AppendResult],
) -> None:
    """Take the results into the response, and let it go."""
    for answer, result in zip(answers, results, strict=True):
        if isinstance(result, KafkaError):
            _refuse(answer, result)
        else:
            answer.base_offset = result.first_offset
            answer.log_append_time_ms = result.log_append_time_ms
            answer.log_start_offset = result.log_start_offset
    if acks == 0:
        if any(answer.error_code for topic in response.responses for answer in topic.partition_responses):
            ctx.close()
        else:
            ctx.respond(None)
    elif ctx.broker.ports.fault("produce-answer-lost"):
        ctx.close()
    else:
        if ctx.api_version >= SINCE_LEADER_HINTS:
            _name_leaders(ctx, response)
        ctx.respond(response)


def _refuse(answer: PartitionProduceResponse, error: KafkaError) -> None:
    """Make it one partition's error, with the records at fault where they are known (KIP-467)."""
    answer.error_code = error.code
    answer.error_message = error.message or None
    if isinstance(error, RecordValidationError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in error.record_errors
        ]


def _name_leaders(ctx: RequestContext, response: ProduceResponse) -> None:
    """Name the present leader of every partition that this broker does not lead."""
    hints = None
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                hints = hints or LeaderHints(ctx)
                by_id = ctx.api_version >= SINCE_TOPIC_IDS
                name = ctx.broker.metadata.topic_name(topic.topic_id) if by_id else topic.name
                if name is not None:
                    answer.current_leader = hints.leader(name, answer.index, LeaderIdAndEpoch)
    if hints is not None:
        response.node_endpoints = hints.endpoints(NodeEndpoint)
