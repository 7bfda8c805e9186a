"""Produce (key 0): append to partitions this broker leads; answer at once, or with acks=-1 when all is committed.

Versions 0-2 may carry messages of format 0 and 1 and several of them; 3 (KIP-98) wants exactly one record batch a
partition; 13 names topics by id (KIP-516). acks=0 gets no answer; if any of its partitions fails the connection is
closed, which is the only way to tell the client.
"""

from __future__ import annotations

from functools import partial

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ...storage.errors import LogDirFailedError
from ...storage.record_validator import RecordValidationError
from ..replication.delayed_produce import AwaitedAppend, DelayedProduce
from ..replication.partition import Partition
from ..request_context import RequestContext

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that Kafka lets write to internal topics."""


def handle(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Append everything, each partition succeeding or failing on its own."""
    broker = ctx.broker
    acks = request.acks
    by_id = ctx.api_version >= 13
    awaited: list[AwaitedAppend] = []
    failed = False
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        name = broker.metadata.topic_name(topic.topic_id) if by_id else topic.name
        partitions = []
        for data in topic.partition_data:
            try:
                partitions.append(_append(ctx, name, data, acks, awaited))
            except KafkaError as error:
                failed = True
                partitions.append(_refusal(data.index, error))
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
    if acks == 0:
        if failed:
            ctx.close()
        else:
            ctx.respond(None)
        return None
    response = ProduceResponse(responses=topics)
    if broker.ports.fault("produce-answer-lost"):
        ctx.close()
        return None
    if not awaited:
        return response
    waiting = DelayedProduce(awaited, partial(ctx.respond, response))
    if not waiting.try_complete():
        keys = [append.partition.topic_partition for append in awaited]
        broker.replica_manager.produce_purgatory.watch(waiting, keys, request.timeout_ms)
    return None


def _append(
    ctx: RequestContext, topic: str | None, data: PartitionProduceData, acks: int, awaited: list[AwaitedAppend]
) -> PartitionProduceResponse:
    """Append one partition's records. Raises KafkaError."""
    if acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; -1, 0 and 1 are allowed")
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    if topic in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
    records = data.records
    if not isinstance(records, memoryview) or not records:
        if ctx.api_version < 3:
            return PartitionProduceResponse(index=data.index, base_offset=-1)
        raise KafkaError(ErrorCode.INVALID_RECORD, "Produce requests with version 3 and above carry exactly one batch")
    replica_manager = ctx.broker.replica_manager
    partition = replica_manager.partition(topic, data.index)
    try:
        info = partition.append_records_to_leader(records, acks, api_version=ctx.api_version)
    except LogDirFailedError as error:
        raise replica_manager.checked_io(partition, error) from error
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )
    if acks == -1 and info.last_offset >= partition.log.high_watermark:
        awaited.append(AwaitedAppend(partition, info.last_offset + 1, partial(_settle, answer, partition)))
    return answer


def _settle(answer: PartitionProduceResponse, partition: Partition, outcome: ErrorCode) -> None:
    """Take the end of the wait into one partition's answer."""
    if outcome is not ErrorCode.NONE:
        answer.error_code = outcome
        answer.base_offset = -1
        answer.log_append_time_ms = -1
    answer.log_start_offset = partition.log.log_start_offset


def _refusal(index: int, error: KafkaError) -> PartitionProduceResponse:
    """One partition's error answer, with the records at fault where they are known (KIP-467)."""
    details = []
    if isinstance(error, RecordValidationError):
        details = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in error.record_errors
        ]
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=-1,
        record_errors=details,
        error_message=error.message or None,
    )
