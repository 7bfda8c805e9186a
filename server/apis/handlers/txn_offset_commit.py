"""TxnOffsetCommit (key 28): commits offsets of a group as part of a transaction (KIP-98).

Version 2 adds the leader epoch, 3 fences by generation and member (KIP-447), 4 has TRANSACTION_ABORTABLE, 5 replaces
AddOffsetsToTxn (KIP-890), 6 has topic ids and the errors of members of the consumer protocol (KIP-1319).
"""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.topic_partition import TopicPartitionKey
from ...config.settings import Settings
from ...coordinator.creation_limiter import ClientIdentity
from ...coordinator.group.group import check_group_id
from ...coordinator.group.group_coordinator import GroupCoordinator
from ...coordinator.group.offset_metadata_manager import Committer
from ...coordinator.group.offsets import CommittedOffset
from ...coordinator.transaction.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
    TransactionSupportedOperation,
)
from ...metadata.metadata_cache import MetadataCache
from ...runtime.loop_sharing import CountBudget
from ..pending_reply import PendingReply
from ..request_context import RequestContext

FIRST_VERSION_WITH_LOADING = 2
FIRST_ABORTABLE_VERSION = 4
TOPIC_ID_VERSION = 6


async def handle(
    ctx: RequestContext,
    request: TxnOffsetCommitRequest,
    *,
    group_coordinator: GroupCoordinator,
    config: Settings,
    add_partitions_to_txn_manager: AddPartitionsToTxnManager,
    metadata_cache: MetadataCache,
    now_ms: Callable[[], int],
) -> TxnOffsetCommitResponse:
    """Commit all valid partitions in one record batch. Invalid partitions have an error of their own."""
    by_id = ctx.api_version >= TOPIC_ID_VERSION
    response, offsets = await _split(request, metadata_cache, config.offset_metadata_max_bytes, now_ms(), by_id=by_id)
    if not offsets:
        return response
    topic_partition = group_coordinator.group_manager.topic_partition_for(request.group_id)
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        ctx.api_version,
        ClientIdentity(f"/{ctx.client_host}", ctx.client_id or ""),
    )
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    reply: PendingReply[ErrorCode] = PendingReply()

    def commit(errors: dict[TopicPartitionKey, ErrorCode]) -> None:
        # In the callback: between the verification and the commit the transaction must not end.
        if error := errors.get(topic_partition):
            reply(_RETRIABLE_ERRORS.get(error, error))
            return
        try:
            group_coordinator.commit_transactional_offsets(request.group_id, committer, producer, offsets, reply)
        except KafkaError as refusal:
            reply(refusal.code)

    try:
        check_group_id(request.group_id)
        group_coordinator.group_manager.get_shard(request.group_id)
        supported_operation = TransactionSupportedOperation.for_version(ctx.api_version, FIRST_ABORTABLE_VERSION)
        add_partitions_to_txn_manager.add_or_verify_transaction(
            request.transactional_id, producer, {topic_partition: -1}, supported_operation, commit
        )
        error = await reply
    except KafkaError as refusal:
        error = refusal.code
    if ctx.api_version < FIRST_VERSION_WITH_LOADING and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or error
    return response


async def _split(
    request: TxnOffsetCommitRequest, metadata_cache: MetadataCache, most_bytes: int, now_ms: int, *, by_id: bool
) -> tuple[TxnOffsetCommitResponse, dict[TopicPartitionKey, CommittedOffset]]:
    """Return the response with the errors of invalid partitions, and the offsets of the valid partitions."""
    offsets: dict[TopicPartitionKey, CommittedOffset] = {}
    response, budget = TxnOffsetCommitResponse(), CountBudget()
    for topic in request.topics:
        name = metadata_cache.topic_name(topic.topic_id) if by_id else topic.name
        answers = []
        for asked in topic.partitions:
            error = ErrorCode.NONE
            if name is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            elif not metadata_cache.has_partition(name, asked.partition_index):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(asked.committed_metadata or "") > most_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[name, asked.partition_index] = _offset(asked, now_ms)
            answers.append(TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error))
            await budget.step()
        response.topics.append(
            TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    return response, offsets


def _offset(asked: TxnOffsetCommitRequestPartition, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=asked.committed_offset,
        leader_epoch=asked.committed_leader_epoch,
        metadata=asked.committed_metadata or "",
        commit_timestamp_ms=now_ms,
    )


_RETRIABLE_ERRORS = {ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE}
"""The error is that of the transaction coordinator: for NOT_COORDINATOR a producer looks up the group coordinator."""
