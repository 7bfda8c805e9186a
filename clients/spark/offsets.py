"""Offsets as Spark's Kafka connector writes them: `{"topicA":{"0":23,"1":-1}}`, -2 the earliest, -1 the latest.

A stream's own offsets, as they stand in its checkpoint, have the same form and one entry more, `"#ids"`, with the ids
of the topics (KIP-516), so that a topic that was deleted and created again is told apart from the one that was read.
No topic can have that name. The connector's checkpoints, without it, can be read as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition

_IDS = "#ids"

Offsets = dict[TopicPartition, int]


@dataclass
class StreamOffsets:
    """Where a stream stands: the next offset of each partition, and which topics these are."""

    offsets: Offsets = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> StreamOffsets:
        """Read what `to_json` gave, or an offset of Spark's own connector. Raises ValueError."""
        ids = {topic: UUID(text) for topic, text in value.get(_IDS, {}).items()}
        return cls(_offsets({topic: p for topic, p in value.items() if topic != _IDS}, "offset"), ids)

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint holds it."""
        known = {topic: str(topic_id) for topic, topic_id in sorted(self.topic_ids.items()) if topic_id != ZERO_UUID}
        return to_json(self.offsets) | ({_IDS: known} if known else {})

    def is_recreated(self, topic: str, topic_id: UUID) -> bool:
        """Whether `topic_id` is another topic than the one that was read under this name."""
        known = self.topic_ids.get(topic, ZERO_UUID)
        return ZERO_UUID not in (known, topic_id) and known != topic_id


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """The dict that Spark's JSON has for these offsets, topics and partitions in order."""
    value: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        value.setdefault(topic, {})[str(partition)] = offset
    return value


def parse_offsets(text: str, option: str) -> Offsets:
    """Offsets or timestamps by partition, as an option gives them. Raises ValueError."""
    return _offsets(_parse_object(text, option), option)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """`{"topicA":[0,1],"topicB":[2,4]}`. Raises ValueError."""
    found = []
    for topic, partitions in _parse_object(text, "assign").items():
        if not isinstance(partitions, list) or not all(type(p) is int and p >= 0 for p in partitions):
            raise ValueError(f'assign: {topic!r} must have a list of partitions, as in {{"topicA":[0,1]}}')
        found += [TopicPartition(topic, p) for p in partitions]
    if not found:
        raise ValueError("assign: no partitions")
    return tuple(dict.fromkeys(found))


def _parse_object(text: str, option: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{option}: {text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{option}: {text!r} is no JSON object")
    return value


def _offsets(value: Mapping[str, Any], option: str) -> Offsets:
    found: Offsets = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise ValueError(f'{option}: {topic!r} must have partitions, as in {{"topicA":{{"0":23}}}}')
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or type(offset) is not int:
                raise ValueError(f"{option}: {partition!r}: {offset!r} of topic {topic!r} is no partition and number")
            found[TopicPartition(topic, int(partition))] = offset
    return found
