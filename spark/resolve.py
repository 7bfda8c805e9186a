"""Resolution of options: the existing partitions, and the start and end offsets of a read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..arrow.client import BlockingClient
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from .offsets import Offsets
from .options import Bound, OffsetBound, ReadSelection


def discover(client: BlockingClient, subscription: ReadSelection, *, missing_ok: bool = False) -> list[TopicPartition]:
    """Return the existing partitions, in order, and refresh the client's metadata of their topics.

    Raises ValueError for a named topic or partition that does not exist, unless `missing_ok`.
    """
    if subscription.pattern is not None:
        client.refresh(None)
        pattern = re.compile(subscription.pattern)
        # As for Java's consumers, internal topics are read only if they are named.
        topics = [
            name
            for name, topic in client.cluster.topics.items()
            if topic.partitions and not topic.is_internal and pattern.fullmatch(name)
        ]
    else:
        named = subscription.names
        topics = client.retrying(lambda: _existing(client, named))
        missing = sorted(set(named) - set(topics))
        if missing and not missing_ok:
            raise ValueError(f"missing topics: {', '.join(missing)}")
    if not subscription.partitions:
        return sorted(
            TopicPartition(name, index) for name in topics for index in client.cluster.topics[name].partitions
        )
    there = [tp for tp in subscription.partitions if tp.topic in topics and client.cluster.partition(tp) is not None]
    if len(there) < len(subscription.partitions) and not missing_ok:
        raise ValueError(
            f"missing partitions: {', '.join(str(tp) for tp in subscription.partitions if tp not in there)}"
        )
    return sorted(there)


def _existing(client: BlockingClient, names: list[str]) -> list[str]:
    """Return the existing topics. Raises KafkaError while that is unknown."""
    client.refresh(names)
    found = []
    for name in names:
        topic = client.cluster.topics.get(name)
        code = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None and topic.partitions:
            found.append(name)
        elif code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(code or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r}")
    return found


def resolve(
    client: BlockingClient, partitions: Iterable[TopicPartition], bound: OffsetBound, *, strict: bool, option: str
) -> Offsets:
    """Resolve `bound` to the offset of each partition.

    A time after the last record is the end of the partition, or with `strict` an error. Raises ValueError, KafkaError.
    """
    wanted = list(partitions)
    if bound.kind is Bound.EARLIEST:
        return client.find_offsets(dict.fromkeys(wanted, EARLIEST))
    if bound.kind is Bound.LATEST:
        return client.find_offsets(dict.fromkeys(wanted, LATEST))
    if bound.kind is Bound.TIMESTAMP:
        return _by_time(client, dict.fromkeys(wanted, bound.timestamp), strict=strict, option=option)
    given = bound.by_partition or {}
    if set(given) != set(wanted):
        extra, lacking = sorted(set(given) - set(wanted)), sorted(set(wanted) - set(given))
        raise ValueError(
            f"{option} must contain exactly the partitions that are read; not read: "
            f"{', '.join(map(str, extra)) or 'none'}, missing: {', '.join(map(str, lacking)) or 'none'}"
        )
    if bound.kind is Bound.TIMESTAMPS:
        return _by_time(client, given, strict=strict, option=option)
    special = {tp: place for tp, place in given.items() if place in (EARLIEST, LATEST)}
    found = client.find_offsets(special) if special else {}
    return {tp: found.get(tp, offset) for tp, offset in given.items()}


def _by_time(client: BlockingClient, timestamps: Offsets, *, strict: bool, option: str) -> Offsets:
    found = client.find_offsets(timestamps)
    late = [tp for tp, offset in found.items() if offset < 0]
    if late and strict:
        times = ", ".join(f"{tp}: {timestamps[tp]}" for tp in late)
        raise ValueError(f"{option}: no record at or after the time given for {times}")
    if late:
        found |= client.find_offsets(dict.fromkeys(late, LATEST))
    return found
