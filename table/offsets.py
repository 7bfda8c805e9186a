"""The offsets of a table: how far it contains each partition, and the ids of the topics.

As JSON they have the form of the checkpoints of Barnabas' Spark source, `{"orders":{"0":23},"#ids":{"orders":"…"}}`,
which is the form of Spark's own Kafka connector with one more entry, `#ids`, which is not a valid topic name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ..protocol.schema import ZERO_UUID
from ..protocol.topic_partition import TopicPartition

_IDS = "#ids"
_MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True)
class TableOffsets:
    """The next offset of each partition, and the ids of the topics as far as brokers have ids."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)

    @classmethod
    def of_text(cls, text: str) -> TableOffsets:
        """Parse the result of `to_text`, or an offset in a checkpoint of Spark. Raises ValueError."""
        try:
            value = json.loads(text)
            ids = {topic: UUID(one) for topic, one in value.get(_IDS, {}).items()}
            offsets = {
                TopicPartition(topic, int(partition)): offset
                for topic, partitions in value.items()
                if not topic.startswith("#")
                for partition, offset in partitions.items()
            }
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"offsets of the table: {text[:200]!r} is not valid: {error}") from None
        for tp, offset in offsets.items():
            if type(offset) is not int or not 0 <= offset <= _MAX_OFFSET:
                raise ValueError(f"offsets of the table: {offset!r} of {tp} is not an offset")
        return cls(offsets, {topic: one for topic, one in ids.items() if one != ZERO_UUID})

    def to_text(self) -> str:
        """Return the offsets as JSON, entries in order."""
        value: dict[str, Any] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            value.setdefault(topic, {})[str(partition)] = offset
        ids = {topic: str(one) for topic, one in sorted(self.topic_ids.items()) if one != ZERO_UUID}
        return json.dumps({**value, **({_IDS: ids} if ids else {})}, separators=(",", ":"))

    def advanced(self, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, UUID]) -> TableOffsets:
        """Return the offsets after a commit. The offset of a partition never decreases."""
        for tp, offset in offsets.items():
            assert offset >= self.offsets.get(tp, 0), f"{tp}: {offset} is before {self.offsets[tp]}"
        known = {topic: one for topic, one in topic_ids.items() if one != ZERO_UUID}
        return TableOffsets({**self.offsets, **offsets}, {**self.topic_ids, **known})

    def find_recreated(self, topic_ids: Mapping[str, UUID]) -> Iterable[str]:
        """Return the topics that have another id than the topics of that name in the table."""
        return [
            topic
            for topic, one in topic_ids.items()
            if ZERO_UUID not in (one, self.topic_ids.get(topic, ZERO_UUID)) and one != self.topic_ids[topic]
        ]
