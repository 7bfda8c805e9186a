"""The user data of the sticky assignors in Kafka's encoding: a member's partitions and their generation.

Neither has a version number: a reader of the eager form tries the newer layout first, as Java's does.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.codec import decode_versioned, encode_versioned
from ...protocol.consumer_protocol import TopicPartitions
from ...protocol.errors import ProtocolError
from ...protocol.schema import int32, message, wire
from ...protocol.topic_partition import TopicPartition
from .assignor import NO_GENERATION
from .sticky_balance import NO_CLAIM, Claim

_VERSION_BYTES = 2


@message(versions="0-1")
class StickyUserData:
    """`sticky`: v1 adds the generation (KIP-341)."""

    previous_assignment: list[TopicPartitions] = wire([TopicPartitions], "0+")
    generation: int = wire(int32, "1+", default=NO_GENERATION)


@message(versions="0")
class CooperativeStickyUserData:
    """`cooperative-sticky`: owned partitions are in the subscription, whose first versions lack the generation."""

    generation: int = wire(int32, "0+")


def encode_claim(claim: Claim) -> bytes:
    data = StickyUserData(previous_assignment=topic_partitions(claim.partitions), generation=claim.generation)
    return encode_versioned(data, 1)[_VERSION_BYTES:]


def decode_claim(user_data: bytes | None) -> Claim:
    """Return the partitions of a member; none if they are missing or unreadable."""
    if not user_data:
        return NO_CLAIM
    for version in (1, 0):
        try:
            data = decode_versioned(StickyUserData, version.to_bytes(_VERSION_BYTES, "big") + user_data)
        except ProtocolError:
            continue
        return Claim(partitions_in(data.previous_assignment), data.generation)
    return NO_CLAIM


def encode_generation(generation: int) -> bytes:
    return encode_versioned(CooperativeStickyUserData(generation=generation), 0)[_VERSION_BYTES:]


def decode_generation(user_data: bytes | None) -> int:
    """Return the generation, -1 if it is missing."""
    try:
        return decode_versioned(CooperativeStickyUserData, bytes(_VERSION_BYTES) + (user_data or b"")).generation
    except ProtocolError:
        return NO_GENERATION


def topic_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """Group partitions by topic, as in the consumer protocol."""
    topics: dict[str, TopicPartitions] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, TopicPartitions(topic=tp.topic, partitions=[])).partitions.append(tp.partition)
    return list(topics.values())


def partitions_in(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    """Invert `topic_partitions`."""
    return tuple(TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions)
