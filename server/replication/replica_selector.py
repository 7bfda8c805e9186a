"""The preferred read replica of a consumer (KIP-392): Kafka's RackAwareReplicaSelector."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..metadata.metadata_cache import MetadataCache
    from .partition import Partition

RACK_AWARE = "RackAwareReplicaSelector"
"""Value of `replica.selector.class`, with or without Kafka's package name."""


def is_rack_aware(selector_class: str | None) -> bool:
    """Whether consumers are sent to replicas in their racks."""
    return selector_class is not None and selector_class.rpartition(".")[2] == RACK_AWARE


class RackAwareReplicaSelector:
    """Selects the preferred read replica of consumers by their rack. Used on the loop's thread only."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def select(self, partition: Partition, offset: int, rack: str, listener: str) -> int | None:
        """Return the broker in that rack with the offset and the highest log end offset.

        None if no broker is better than this one, for example because the leader is in that rack.
        """
        followers, metadata = partition.followers, self._metadata
        if followers is None or not rack or metadata.rack(partition.leader) == rack:
            return None
        near = [
            replica
            for replica in followers.replicas.values()
            if replica.broker_id in followers.isr
            and replica.log_start_offset <= offset <= replica.log_end_offset
            and metadata.rack(replica.broker_id) == rack
            and metadata.endpoint(replica.broker_id, listener) is not None
        ]
        best = max(near, key=lambda one: (one.log_end_offset, one.last_caught_up, -one.broker_id), default=None)
        return None if best is None else best.broker_id
