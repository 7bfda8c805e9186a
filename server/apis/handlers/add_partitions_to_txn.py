"""AddPartitionsToTxn (key 24): partitions take part in a producer's transaction (KIP-98).

Version 2 knows PRODUCER_FENCED. From 4 on it is spoken between brokers: for several transactions at once, and to ask
whether partitions are part of one (KIP-890); 5 knows TRANSACTION_ABORTABLE. All partitions of a transaction are added
or none: where one cannot be, the others are told OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ....protocol.producer_identity import ProducerIdentity
from ...coordinator.transaction.coordinator import TransactionCoordinator
from ...coordinator.transaction.metadata import V1, V2, Place
from ...metadata.metadata_cache import MetadataCache
from ...metadata.topic_names import is_internal
from ...runtime.turns import Pace
from ..request_context import RequestContext
from ..transaction_errors import known_to

FIRST_VERSION_WITH_FENCING = 2
FIRST_VERSION_OF_BROKERS = 4


async def handle(
    ctx: RequestContext,
    request: AddPartitionsToTxnRequest,
    *,
    metadata: MetadataCache,
    transactions: TransactionCoordinator,
) -> AddPartitionsToTxnResponse:
    """Answers when what is added is durable."""
    if ctx.api_version >= FIRST_VERSION_OF_BROKERS:
        # Of several entries for one id the first one counts.
        wanted = {one.transactional_id: one for one in reversed(request.transactions)}
        results = []
        for one in dict.fromkeys(each.transactional_id for each in request.transactions):
            outcome = await _outcome(ctx, wanted[one], metadata, transactions)
            results.append(AddPartitionsToTxnResult(transactional_id=one, topic_results=outcome))
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _outcome(ctx, only, metadata, transactions))


async def _outcome(
    ctx: RequestContext,
    wanted: AddPartitionsToTxnTransaction,
    metadata: MetadataCache,
    transactions: TransactionCoordinator,
) -> list[AddPartitionsToTxnTopicResult]:
    """What becomes of one transaction's partitions."""
    places, errors = await _sorted(ctx, wanted.topics, metadata)
    if errors:
        return _results(dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | errors)
    identity = ProducerIdentity(wanted.producer_id, wanted.producer_epoch)
    if wanted.verify_only:
        found = transactions.verify_partitions(wanted.transactional_id, identity, frozenset(places))
        return _results({place: found[place] for place in places})
    replied: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def reply(error: ErrorCode) -> None:
        if not replied.done():
            replied.set_result(error)

    version = V2 if ctx.api_version >= FIRST_VERSION_OF_BROKERS else V1
    transactions.add_partitions(wanted.transactional_id, identity, frozenset(places), version, reply)
    error = known_to(ctx.api_version, FIRST_VERSION_WITH_FENCING, await replied)
    return _results(dict.fromkeys(places, error))


async def _sorted(
    ctx: RequestContext, topics: Iterable[AddPartitionsToTxnTopic], metadata: MetadataCache
) -> tuple[list[Place], dict[Place, ErrorCode]]:
    """Partitions that may be added, each once, and what is wrong with the others."""
    places: dict[Place, None] = {}
    errors: dict[Place, ErrorCode] = {}
    pace = Pace()
    for topic in topics:
        is_allowed = ctx.api_version >= FIRST_VERSION_OF_BROKERS or (
            not is_internal(topic.name) and ctx.may(AclOperation.WRITE, AclResourceType.TOPIC, topic.name)
        )
        for index in topic.partitions:
            if not is_allowed:
                errors[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not metadata.has_partition(topic.name, index):
                errors[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                places[topic.name, index] = None
            await pace.step()
    return list(places), errors


def _results(outcomes: dict[Place, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), error in outcomes.items():
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return list(topics.values())
