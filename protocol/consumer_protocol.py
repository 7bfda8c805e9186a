"""The payloads of consumers in JoinGroup and SyncGroup: subscription and assignment.

The broker treats them as opaque bytes, except that it may read the subscribed topics. Each starts with its version
(`codec.encode_versioned`); a reader treats a newer version as its own newest.
"""

from __future__ import annotations

from .schema import bytes_, int32, message, string, wire


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message(versions="0-3")
class ConsumerProtocolSubscription:
    """A member's metadata: v1 adds owned partitions (KIP-429), v2 their generation, v3 the rack."""

    topics: list[str] = wire([string], "0+")
    user_data: bytes | None = wire(bytes_, "0+", null="0+", default=None)
    owned_partitions: list[TopicPartitions] = wire([TopicPartitions], "1+", ignorable=True)
    generation_id: int = wire(int32, "2+", default=-1, ignorable=True)
    rack_id: str | None = wire(string, "3+", null="3+", default=None, ignorable=True)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """A member's assignment; the same layout in every version."""

    assigned_partitions: list[TopicPartitions] = wire([TopicPartitions], "0+")
    user_data: bytes | None = wire(bytes_, "0+", null="0+", default=None)
