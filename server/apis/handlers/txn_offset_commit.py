"""TxnOffsetCommit (key 28): offsets of a group that count when a transaction is committed (KIP-98).

Version 2 adds the leader epoch, 3 fences by generation and member (KIP-447), 4 knows TRANSACTION_ABORTABLE, 5 says as
much as AddOffsetsToTxn did (KIP-890).
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
from ...config.settings import Settings
from ...coordinator.allowance import Maker
from ...coordinator.group.group_id import check_group_id
from ...coordinator.group.offset_commits import Committer
from ...coordinator.group.offsets import CommittedOffset, Place
from ...coordinator.transaction.enlistment import Enlistment, Manner
from ...runtime.turns import Pace
from ..ports import ClusterMetadata, CommittedOffsets
from ..request_context import RequestContext

FIRST_VERSION_WITH_LOADING = 2
FIRST_ABORTABLE_VERSION = 4


async def handle(
    ctx: RequestContext,
    request: TxnOffsetCommitRequest,
    *,
    committed_offsets: CommittedOffsets,
    config: Settings,
    enlistment: Enlistment,
    metadata: ClusterMetadata,
    now_ms: Callable[[], int],
) -> None:
    """Partitions that cannot be committed are told so; the others are one record batch and share its fate."""
    response, offsets = await _split(request, metadata, config.offset_metadata_max_bytes, now_ms())

    def reply(error: ErrorCode) -> None:
        if ctx.api_version < FIRST_VERSION_WITH_LOADING and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = partition.error_code or error
        ctx.respond(response)

    if not offsets:
        reply(ErrorCode.NONE)
        return
    place = committed_offsets.place_of(request.group_id)
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        ctx.api_version,
        Maker(f"/{ctx.client_host}", ctx.client_id or ""),
    )
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)

    def commit(errors: dict[Place, ErrorCode]) -> None:
        if error := errors.get(place):
            reply(_AS_TOLD.get(error, error))
            return
        try:
            committed_offsets.commit_in_transaction(request.group_id, committer, producer, offsets, reply)
        except KafkaError as refusal:
            reply(refusal.code)

    try:
        check_group_id(request.group_id)
        committed_offsets.check_served(request.group_id)
    except KafkaError as refusal:
        reply(refusal.code)
        return
    manner = Manner.of(ctx.api_version, FIRST_ABORTABLE_VERSION)
    enlistment.enlist(request.transactional_id, producer, {place: -1}, manner, commit)


async def _split(
    request: TxnOffsetCommitRequest, metadata: ClusterMetadata, most_bytes: int, now_ms: int
) -> tuple[TxnOffsetCommitResponse, dict[Place, CommittedOffset]]:
    """The response with the errors that are known already, and what may be committed."""
    offsets: dict[Place, CommittedOffset] = {}
    response, pace = TxnOffsetCommitResponse(), Pace()
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            error = ErrorCode.NONE
            if not metadata.has_partition(topic.name, asked.partition_index):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(asked.committed_metadata or "") > most_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[topic.name, asked.partition_index] = _offset(asked, now_ms)
            answers.append(TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error))
            await pace.step()
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return response, offsets


def _offset(asked: TxnOffsetCommitRequestPartition, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=asked.committed_offset,
        leader_epoch=asked.committed_leader_epoch,
        metadata=asked.committed_metadata or "",
        commit_timestamp_ms=now_ms,
    )


_AS_TOLD = {ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE}
"""The coordinator that is meant is another one than the group's, which the producer would look for anew."""
