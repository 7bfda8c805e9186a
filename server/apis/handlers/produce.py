"""Produce (key 0): append to partitions this broker leads; answer at once, or with acks=-1 when all is committed.

Versions 0-2 may carry messages of format 0 and 1 and several of them; 3 (KIP-98) wants exactly one record batch a
partition; 10 tells who leads if this broker does not (KIP-951); 13 names topics by id (KIP-516). acks=0 gets no answer;
if any of its partitions fails the connection is closed, which is the only way to tell the client.
"""

from __future__ import annotations

from functools import partial

from ....protocol.batch_header import ATTRIBUTES_POSITION, TRANSACTIONAL_MASK
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ....protocol.record import MAGIC_POSITION
from ....storage.errors import LogDirFailedError
from ....storage.record_validator import RecordValidationError
from ...metadata.topic_names import is_internal
from ...replication.delayed_produce import AwaitedAppend, DelayedProduce
from ...replication.partition import Partition
from ..leader_hints import LeaderHints
from ..request_context import RequestContext

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that Kafka lets write to internal topics."""
SINCE_LEADER_HINTS = 10
SINCE_TOPIC_IDS = 13
ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1


def handle(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Append everything, each partition succeeding or failing on its own."""
    broker = ctx.broker
    acks = request.acks
    awaited: list[AwaitedAppend] = []
    failed = False
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        name = _name(ctx, topic)
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
        return _with_leaders(ctx, response) if failed else response
    waiting = DelayedProduce(awaited, lambda: ctx.respond(_with_leaders(ctx, response)))
    if not waiting.try_complete():
        keys = [append.partition.topic_partition for append in awaited]
        broker.replica_manager.produce_purgatory.watch(waiting, keys, request.timeout_ms)
    return None


def _name(ctx: RequestContext, topic: TopicProduceData | TopicProduceResponse) -> str | None:
    """The topic's name; None for an id that no topic has."""
    return ctx.broker.metadata.topic_name(topic.topic_id) if ctx.api_version >= SINCE_TOPIC_IDS else topic.name


def _append(
    ctx: RequestContext, topic: str | None, data: PartitionProduceData, acks: int, awaited: list[AwaitedAppend]
) -> PartitionProduceResponse:
    """Append one partition's records. Raises KafkaError."""
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    # As in Kafka, a partition that is not here comes before anything that is wrong with the request.
    replica_manager = ctx.broker.replica_manager
    partition = replica_manager.partition(topic, data.index)
    if acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; -1, 0 and 1 are allowed")
    if is_internal(topic) and ctx.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
    records = data.records
    if not isinstance(records, memoryview) or not records:
        if ctx.api_version < 3:
            return PartitionProduceResponse(index=data.index, base_offset=-1)
        raise KafkaError(ErrorCode.INVALID_RECORD, "Produce requests with version 3 and above carry exactly one batch")
    if _is_transactional(records):
        # There is no transaction coordinator: no transaction is open, and none could ever be ended.
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction of this producer is open")
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


def _is_transactional(records: memoryview) -> bool:
    """Whether the first batch is of format v2 and part of a transaction."""
    if len(records) <= ATTRIBUTES_LOW_BYTE or not records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_MASK:
        return False
    return records[MAGIC_POSITION] == 2


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


def _with_leaders(ctx: RequestContext, response: ProduceResponse) -> ProduceResponse:
    """Name the present leader of every partition that this broker does not lead."""
    if ctx.api_version < SINCE_LEADER_HINTS:
        return response
    hints = LeaderHints(ctx)
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                name = _name(ctx, topic)
                if name is not None:
                    answer.current_leader = hints.leader(name, answer.index, LeaderIdAndEpoch)
    response.node_endpoints = hints.endpoints(NodeEndpoint)
    return response
