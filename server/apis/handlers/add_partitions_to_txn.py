"""AddPartitionsToTxn (key 24): adds partitions to a producer's transaction (KIP-98).

Version 2 has PRODUCER_FENCED. From version 4 on it is a request between brokers: for several transactions, and to
verify partitions of a transaction (KIP-890); 5 has TRANSACTION_ABORTABLE. Either all partitions of a transaction are
added or none: if a partition has an error, the others have OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

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
from ....protocol.topic_partition import TopicPartitionKey
from ...coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ...coordinator.transaction.transaction_metadata import TV_0, TV_2
from ...metadata.metadata_cache import MetadataCache
from ...metadata.topic_names import is_internal
from ...runtime.loop_sharing import SlicedWork, Steps
from ..error_responses import producer_error_for_version
from ..pending_reply import PendingReply
from ..request_context import RequestContext

FIRST_VERSION_WITH_FENCING = 2
FIRST_VERSION_OF_BROKERS = 4

Outcomes: TypeAlias = dict[TopicPartitionKey, ErrorCode]


async def handle(
    ctx: RequestContext,
    request: AddPartitionsToTxnRequest,
    *,
    metadata_cache: MetadataCache,
    sliced_work: SlicedWork,
    transaction_coordinator: TransactionCoordinator,
) -> AddPartitionsToTxnResponse:
    """Respond when all additions are durable."""
    if ctx.api_version < FIRST_VERSION_OF_BROKERS:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        reply: PendingReply[Outcomes] = PendingReply()
        await sliced_work.complete(_begin(ctx, transaction, metadata_cache, transaction_coordinator, reply))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(await reply))
    # Of several entries for one id the first counts.
    transactions = {entry.transactional_id: entry for entry in reversed(request.transactions)}
    steps = _begin_all(ctx, reversed(transactions.values()), metadata_cache, transaction_coordinator)
    replies = await sliced_work.complete(steps)
    results = {name: await one for name, one in replies.items()}
    names = dict.fromkeys(entry.transactional_id for entry in request.transactions)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=name, topic_results=_results(results[name])) for name in names
        ]
    )


def _begin_all(
    ctx: RequestContext,
    transactions: Iterable[AddPartitionsToTxnTransaction],
    metadata_cache: MetadataCache,
    transaction_coordinator: TransactionCoordinator,
) -> Steps[dict[str, PendingReply[Outcomes]]]:
    """Begin all additions: no addition waits until another is durable."""
    replies: dict[str, PendingReply[Outcomes]] = {}
    for transaction in transactions:
        reply = replies[transaction.transactional_id] = PendingReply()
        yield from _begin(ctx, transaction, metadata_cache, transaction_coordinator, reply)
        yield
    return replies


def _begin(
    ctx: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    metadata_cache: MetadataCache,
    transaction_coordinator: TransactionCoordinator,
    done: PendingReply[Outcomes],
) -> Steps[None]:
    """Begin to add, or verify, the partitions of one transaction."""
    partitions, errors = yield from _sorted(ctx, transaction.topics, metadata_cache)
    name, identity = transaction.transactional_id, ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if errors:
        done(dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | errors)
        return
    if transaction.verify_only:
        verified = transaction_coordinator.verify_partitions_in_transaction(name, identity, frozenset(partitions))
        done({partition: verified[partition] for partition in partitions})
        return

    def reply(error: ErrorCode) -> None:
        error = producer_error_for_version(ctx.api_version, FIRST_VERSION_WITH_FENCING, error)
        done(dict.fromkeys(partitions, error))

    # A request of a broker has the transactions of many producers: none may wait for the last transaction of another.
    if ctx.api_version >= FIRST_VERSION_OF_BROKERS:
        transaction_coordinator.add_partitions_to_transaction(name, identity, frozenset(partitions), TV_2, reply)
    else:
        transaction_coordinator.add_partitions_with_retry(name, identity, frozenset(partitions), TV_0, reply)


def _sorted(
    ctx: RequestContext, topics: Iterable[AddPartitionsToTxnTopic], metadata_cache: MetadataCache
) -> Steps[tuple[list[TopicPartitionKey], Outcomes]]:
    """Return the partitions that may be added, each once, and the errors of the others."""
    partitions: dict[TopicPartitionKey, None] = {}
    errors: Outcomes = {}
    for topic in topics:
        is_allowed = ctx.api_version >= FIRST_VERSION_OF_BROKERS or (
            not is_internal(topic.name) and ctx.is_authorized(AclOperation.WRITE, AclResourceType.TOPIC, topic.name)
        )
        for index in topic.partitions:
            if not is_allowed:
                errors[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not metadata_cache.has_partition(topic.name, index):
                errors[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                partitions[topic.name, index] = None
            yield
    return list(partitions), errors


def _results(outcomes: Outcomes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), error in outcomes.items():
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return list(topics.values())
