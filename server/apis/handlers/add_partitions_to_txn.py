"""AddPartitionsToTxn (key 24): partitions take part in a producer's transaction (KIP-98).

Version 2 knows PRODUCER_FENCED. From 4 on it is spoken between brokers: for several transactions at once, and to ask
whether partitions are part of one (KIP-890); 5 knows TRANSACTION_ABORTABLE. All partitions of a transaction are added
or none: where one cannot be, the others are told OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
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
from ...coordinator.transaction.metadata import V1, V2, Place
from ...metadata.topic_names import is_internal
from ...runtime.turns import Steps
from ..ports import ClusterMetadata, ProducerTransactions
from ..request_context import RequestContext
from ..transaction_errors import known_to

FIRST_VERSION_WITH_FENCING = 2
FIRST_VERSION_OF_BROKERS = 4

Outcomes: TypeAlias = dict[Place, ErrorCode]


def handle(
    ctx: RequestContext,
    request: AddPartitionsToTxnRequest,
    *,
    metadata: ClusterMetadata,
    transactions: ProducerTransactions,
) -> Steps[None]:
    """Answers when what is added is durable."""
    if ctx.api_version < FIRST_VERSION_OF_BROKERS:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )

        def added(outcomes: Outcomes) -> None:
            ctx.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(outcomes)))

        yield from _begin(ctx, only, metadata, transactions, added)
        return
    # Of several entries for one id the first one counts. None waits for another to be durable.
    wanted = {one.transactional_id: one for one in reversed(request.transactions)}
    found: dict[str, Outcomes] = {}

    def one_found(name: str, outcomes: Outcomes) -> None:
        found[name] = outcomes
        if len(found) == len(wanted):
            respond()

    def respond() -> None:
        names = dict.fromkeys(each.transactional_id for each in request.transactions)
        results = [AddPartitionsToTxnResult(transactional_id=one, topic_results=_results(found[one])) for one in names]
        ctx.respond(AddPartitionsToTxnResponse(results_by_transaction=results))

    if not wanted:
        respond()
    for one in reversed(wanted.values()):
        yield from _begin(ctx, one, metadata, transactions, partial(one_found, one.transactional_id))
        yield


def _begin(
    ctx: RequestContext,
    wanted: AddPartitionsToTxnTransaction,
    metadata: ClusterMetadata,
    transactions: ProducerTransactions,
    found: Callable[[Outcomes], None],
) -> Steps[None]:
    """`found` is told once what becomes of one transaction's partitions."""
    places, errors = yield from _sorted(ctx, wanted.topics, metadata)
    identity = ProducerIdentity(wanted.producer_id, wanted.producer_epoch)
    if errors:
        found(dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | errors)
        return
    if wanted.verify_only:
        verified = transactions.verify_partitions(wanted.transactional_id, identity, frozenset(places))
        found({place: verified[place] for place in places})
        return

    def reply(error: ErrorCode) -> None:
        found(dict.fromkeys(places, known_to(ctx.api_version, FIRST_VERSION_WITH_FENCING, error)))

    # Brokers have a request for many producers, of whom none is to wait for another's last transaction.
    if ctx.api_version >= FIRST_VERSION_OF_BROKERS:
        transactions.add_partitions(wanted.transactional_id, identity, frozenset(places), V2, reply)
    else:
        transactions.add_partitions_soon(wanted.transactional_id, identity, frozenset(places), V1, reply)


def _sorted(
    ctx: RequestContext, topics: Iterable[AddPartitionsToTxnTopic], metadata: ClusterMetadata
) -> Steps[tuple[list[Place], Outcomes]]:
    """Partitions that may be added, each once, and what is wrong with the others."""
    places: dict[Place, None] = {}
    errors: Outcomes = {}
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
            yield
    return list(places), errors


def _results(outcomes: Outcomes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), error in outcomes.items():
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return list(topics.values())
