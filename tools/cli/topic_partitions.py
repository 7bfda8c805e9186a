"""Partitions on the command line: `TOPIC`, or `TOPIC:0,1,5`."""

from __future__ import annotations

from collections.abc import Iterable

from ...clients.admin import Admin
from ...clients.cluster import PartitionInfo
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition


async def find_partitions(admin: Admin, texts: Iterable[str]) -> dict[TopicPartition, PartitionInfo]:
    """Return the named partitions, or all partitions without a text. Raises ValueError, KafkaError."""
    wanted: dict[str, list[int]] = {}
    for text in texts:
        topic, colon, indexes = text.rpartition(":")
        if not colon:
            topic, indexes = text, ""
        try:
            wanted.setdefault(topic, []).extend(int(index) for index in indexes.split(",") if index)
        except ValueError:
            raise ValueError(f"{text}: expected TOPIC, or TOPIC:0,1,5") from None
    found: dict[TopicPartition, PartitionInfo] = {}
    for info in await admin.describe_topics(list(wanted) if wanted else None):
        if info.error:
            raise KafkaError(info.error, f"topic {info.name}")
        indexes_of_topic = wanted.get(info.name) or sorted(info.partitions)
        for index in indexes_of_topic:
            if index not in info.partitions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {index} of topic {info.name}")
            found[TopicPartition(info.name, index)] = info.partitions[index]
    return found
