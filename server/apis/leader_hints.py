"""Says to a client that came to the wrong broker, or with an old leader epoch, who leads now (KIP-951).

The client can then go there at once instead of asking for metadata first. Kafka's KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ...protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from .ports import ClusterMetadata

Leader = TypeVar("Leader")
Endpoint = TypeVar("Endpoint")


class LeaderHints:
    """The leaders named in one response, and where they are reached on the listener that the request came in on."""

    __slots__ = ("_leader_ids", "_listener", "_metadata")

    def __init__(self, metadata: ClusterMetadata, listener: str) -> None:
        self._metadata = metadata
        self._listener = listener
        self._leader_ids: dict[int, None] = {}

    def leader(self, topic: str, index: int, make: Callable[..., Leader]) -> Leader:
        """`make(leader_id=…, leader_epoch=…)`, both -1 where nothing is known of the partition."""
        image = self._metadata.partition(TopicPartition(topic, index))
        if image is None:
            return make(leader_id=-1, leader_epoch=-1)
        self._leader_ids[image.leader] = None
        return make(leader_id=image.leader, leader_epoch=image.leader_epoch)

    def endpoints(self, make: Callable[..., Endpoint]) -> list[Endpoint]:
        """`make(node_id=…, host=…, port=…, rack=…)` for each leader named that is alive."""
        found = []
        for leader_id in self._leader_ids:
            endpoint = self._metadata.endpoint(leader_id, self._listener)
            if endpoint is not None:
                rack = self._metadata.brokers[leader_id].rack
                found.append(make(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=rack))
        return found
