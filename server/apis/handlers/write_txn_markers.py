"""WriteTxnMarkers (key 27): ends transactions on partitions that this broker leads (KIP-98).

Sent by transaction coordinators, and by administrators to end a hanging transaction (KIP-664). Since version 2 a marker
has the transaction version of its producer (KIP-1228). The response is sent when all markers are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ....protocol.errors import ErrorCode
from ....protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ....protocol.topic_partition import TopicPartitionKey
from ...coordinator.transaction.transaction_marker_channel_manager import MarkerWriter, TransactionMarker
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext

MARKERS_PER_TURN = 100
"""Markers that are begun: each takes some tens of microseconds."""


async def handle(
    ctx: RequestContext, request: WriteTxnMarkersRequest, *, marker_writer: MarkerWriter
) -> WriteTxnMarkersResponse:
    """Write the markers of each partition on its own. The response has each producer once."""
    outcomes: dict[int, dict[TopicPartitionKey, ErrorCode]] = {}
    budget, loop = CountBudget(MARKERS_PER_TURN), asyncio.get_running_loop()
    writing: list[asyncio.Future[None]] = []
    for asked in request.markers:
        of_producer = outcomes.setdefault(asked.producer_id, {})
        is_written: asyncio.Future[None] = loop.create_future()

        def written(
            results: dict[TopicPartitionKey, ErrorCode],
            of_producer: dict[TopicPartitionKey, ErrorCode] = of_producer,
            is_written: asyncio.Future[None] = is_written,
        ) -> None:
            of_producer.update(results)
            if not is_written.done():
                is_written.set_result(None)

        marker = TransactionMarker(
            asked.producer_id,
            asked.producer_epoch,
            asked.transaction_result,
            asked.coordinator_epoch,
            asked.transaction_version,
        )
        writing.append(is_written)
        partitions = list(_topic_partitions(asked))
        marker_writer.write(marker, partitions, written)
        await budget.step(1 + len(partitions))
    for each in writing:
        await each
    return WriteTxnMarkersResponse(markers=[_result(producer_id, results) for producer_id, results in outcomes.items()])


def _topic_partitions(asked: WritableTxnMarker) -> Iterator[TopicPartitionKey]:
    for topic in asked.topics:
        for index in topic.partition_indexes:
            yield topic.name, index


def _result(producer_id: int, outcomes: dict[TopicPartitionKey, ErrorCode]) -> WritableTxnMarkerResult:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for (name, index), error in outcomes.items():
        topic = topics.setdefault(name, WritableTxnMarkerTopicResult(name=name))
        topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
    return WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values()))
