"""The current leaders in error responses of Produce and Fetch (KIP-951, Kafka's KafkaApis.getCurrentLeader).

A client that sent its request to the wrong broker, or with an old leader epoch, continues at the current leader without
a Metadata request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ...protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ..metadata.metadata_cache import MetadataCache

Leader = TypeVar("Leader")
Endpoint = TypeVar("Endpoint")


class LeaderHints:
    """The leaders in one response, and their endpoints on the listener of the request."""

    __slots__ = ("_leader_ids", "_listener", "_metadata_cache")

    def __init__(self, metadata_cache: MetadataCache, listener: str) -> None:
        self._metadata_cache = metadata_cache
        self._listener = listener
        self._leader_ids: dict[int, None] = {}

    def leader(self, topic: str, index: int, make: Callable[..., Leader]) -> Leader:
        """Return `make(leader_id=…, leader_epoch=…)`, both -1 for a partition that is not in the metadata cache."""
        image = self._metadata_cache.partition(TopicPartition(topic, index))
        if image is None:
            return make(leader_id=-1, leader_epoch=-1)
        self._leader_ids[image.leader] = None
        return make(leader_id=image.leader, leader_epoch=image.leader_epoch)

    def endpoints(self, make: Callable[..., Endpoint]) -> list[Endpoint]:
        """Return `make(node_id=…, host=…, port=…, rack=…)` for each live leader of the response."""
        found = []
        for leader_id in self._leader_ids:
            endpoint = self._metadata_cache.endpoint(leader_id, self._listener)
            if endpoint is not None:
                rack = self._metadata_cache.brokers[leader_id].rack
                found.append(make(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=rack))
        return found
