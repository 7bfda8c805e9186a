"""Offsets as Spark's Kafka connector writes them: `{"topicA":{"0":23,"1":-1}}`, -2 the earliest, -1 the latest.

The offsets of a stream, as the checkpoint holds them, have the same form and a few more entries. Their names begin with
`#`, which no topic name can. Checkpoints of Spark's Kafka connector, which lack these entries, can be read as well.

* `#ids`: the ids of the topics (KIP-516), so that a topic that was deleted and created again is recognized.
* `#starts`: where the partitions that are new in this batch begin. Spark records only the ends of batches, so without
  this entry a first batch that runs again would begin at the present result of `startingOffsets`.
* `#missing`: the offsets of partitions that were read before and that the brokers do not list at present.
* `#initial`: the offset before the first batch. The end of the first batch contains its start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ..protocol.schema import ZERO_UUID
from ..protocol.topic_partition import TopicPartition

_IDS, _STARTS, _MISSING, _INITIAL = "#ids", "#starts", "#missing", "#initial"
_EARLIEST_PLACE = -2
_MAX_OFFSET = 2**63 - 1

Offsets = dict[TopicPartition, int]


@dataclass
class StreamOffsets:
    """The position of a stream: the next offset of each partition, and the ids of the topics.

    The end of a batch also has the `starts` of the new partitions in it, and the `missing` ones.
    """

    offsets: Offsets = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    missing: Offsets = field(default_factory=dict)
    is_initial: bool = False

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> StreamOffsets:
        """Read the result of `to_json`, or an offset of Spark's Kafka connector. Raises ValueError."""
        ids = {topic: UUID(text) for topic, text in value.get(_IDS, {}).items()}
        special = (_IDS, _STARTS, _MISSING, _INITIAL)
        return cls(
            _offsets({topic: p for topic, p in value.items() if topic not in special}, "offset"),
            ids,
            _offsets(value.get(_STARTS, {}), "offset"),
            _offsets(value.get(_MISSING, {}), "offset"),
            bool(value.get(_INITIAL, False)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the dict that the checkpoint holds as JSON, entries in a fixed order, since Spark compares text."""
        value = to_json(self.offsets)
        known = {topic: str(topic_id) for topic, topic_id in sorted(self.topic_ids.items()) if topic_id != ZERO_UUID}
        if known:
            value[_IDS] = known
        if self.starts:
            value[_STARTS] = to_json(self.starts)
        if self.missing:
            value[_MISSING] = to_json(self.missing)
        if self.is_initial:
            value[_INITIAL] = True
        return value

    def is_recreated(self, topic: str, topic_id: UUID) -> bool:
        """Return whether `topic_id` is another topic than the former topic with this name."""
        known = self.topic_ids.get(topic, ZERO_UUID)
        return ZERO_UUID not in (known, topic_id) and known != topic_id

    def known_offset(self, partition: TopicPartition, topic_id: UUID) -> int | None:
        """Return how far the partition was read; None if it, or this topic of its name, has not been read."""
        if self.is_recreated(partition.topic, topic_id):
            return None
        return self.offsets.get(partition, self.missing.get(partition))

    def to_be_resumed(self, end: StreamOffsets) -> Offsets:
        """Return the offsets of partitions that `end` lacks, except partitions of recreated topics."""
        ids = end.topic_ids
        return {
            tp: offset
            for tp, offset in sorted((self.missing | self.offsets).items())
            if tp not in end.offsets and not self.is_recreated(tp.topic, ids.get(tp.topic, ZERO_UUID))
        }


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Return the dict of Spark's JSON for these offsets, topics and partitions in order."""
    value: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        value.setdefault(topic, {})[str(partition)] = offset
    return value


def parse_offsets(text: str, option: str) -> Offsets:
    """Parse offsets or timestamps by partition in an option. Raises ValueError."""
    return _offsets(_parse_object(text, option), option)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Parse `{"topicA":[0,1],"topicB":[2,4]}`. Raises ValueError."""
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
        raise ValueError(f"{option}: {text!r} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{option}: {text!r} is not a JSON object")
    return value


def _offsets(value: Mapping[str, Any], option: str) -> Offsets:
    found: Offsets = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise ValueError(f'{option}: {topic!r} must have partitions, as in {{"topicA":{{"0":23}}}}')
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or type(offset) is not int:
                raise ValueError(
                    f"{option}: {partition!r}: {offset!r} of topic {topic!r}: expected a partition and a number"
                )
            if not _EARLIEST_PLACE <= offset <= _MAX_OFFSET:
                raise ValueError(f"{option}: {offset} of {topic}-{partition} is not between -2 and 2^63 - 1")
            found[TopicPartition(topic, int(partition))] = offset
    return found
