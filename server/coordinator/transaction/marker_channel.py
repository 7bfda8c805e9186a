"""Markers for partitions of the whole cluster: here they are written, to other leaders they are sent (WriteTxnMarkers).

Kafka's TransactionMarkerChannelManager. Nothing is repeated here: whoever wants the markers written is told the
outcome, and asks again, perhaps another leader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ....protocol.errors import ErrorCode, KafkaError, code_of
from ....protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ....protocol.topic_partition import TopicPartition, indexes_by_topic
from ...runtime.turns import MARKED_PARTITIONS
from .broker_queues import BrokerQueues
from .markers import MarkerWriter, TransactionMarker, Written
from .metadata import Place

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache
    from ...runtime.ports import Ask


class _Markers(NamedTuple):
    """One marker on its way to a broker."""

    marker: TransactionMarker
    places: list[Place]
    """Not more than go into one request."""
    written: Written


class MarkerChannel:
    """Loop-thread only."""

    def __init__(
        self,
        broker_id: int,
        here: MarkerWriter,
        metadata: MetadataCache,
        ask: Ask,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._broker_id = broker_id
        self._here = here
        self._metadata = metadata
        self._queues: BrokerQueues[_Markers] = BrokerQueues(ask, loop, lowest=0, request=_request, answered=_answered)

    async def close(self) -> None:
        """Nothing is sent any more."""
        await self._queues.close()

    def write(self, marker: TransactionMarker, places: Iterable[Place], written: Written) -> None:
        """Have the marker written to each partition; `written` is told of each once, of those of a leader together.

        LEADER_NOT_AVAILABLE where nobody leads, NETWORK_EXCEPTION where a leader does not answer.
        """
        by_leader: dict[int, list[Place]] = {}
        for place in places:
            image = self._metadata.partition(TopicPartition(*place))
            by_leader.setdefault(-1 if image is None else image.leader, []).append(place)
        for leader, led in by_leader.items():
            if leader == self._broker_id:
                self._here.write(marker, led, written)
            elif leader < 0:
                written(dict.fromkeys(led, ErrorCode.LEADER_NOT_AVAILABLE))
            else:
                for start in range(0, len(led), MARKED_PARTITIONS):
                    self._queues.add(leader, _Markers(marker, led[start : start + MARKED_PARTITIONS], written))


def _request(waiting: deque[_Markers]) -> tuple[list[_Markers], WriteTxnMarkersRequest]:
    """The next ones, as many as go into a request."""
    taken = [waiting.popleft()]
    room = MARKED_PARTITIONS - len(taken[0].places)
    while waiting and len(waiting[0].places) <= room:
        room -= len(waiting[0].places)
        taken.append(waiting.popleft())
    return taken, WriteTxnMarkersRequest(markers=[_writable(one) for one in taken])


def _writable(one: _Markers) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=one.marker.producer_id,
        producer_epoch=one.marker.producer_epoch,
        transaction_result=one.marker.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in indexes_by_topic(one.places).items()
        ],
        coordinator_epoch=one.marker.coordinator_epoch,
    )


def _answered(asked: Sequence[_Markers], response: WriteTxnMarkersResponse | KafkaError) -> None:
    if isinstance(response, KafkaError):
        for one in asked:
            one.written(dict.fromkeys(one.places, ErrorCode.NETWORK_EXCEPTION))
        return
    outcomes = {
        (result.producer_id, topic.name, partition.partition_index): code_of(partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }
    for one in asked:
        producer_id = one.marker.producer_id
        one.written(
            {place: outcomes.get((producer_id, *place), ErrorCode.UNKNOWN_SERVER_ERROR) for place in one.places}
        )
