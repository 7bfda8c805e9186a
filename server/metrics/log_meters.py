"""What producers have put into topics since the broker started, out of what each log has counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...protocol.topic_partition import TopicPartition
    from ...storage.log import Log


class LogMeters:
    """Totals that never go back, though logs come and go. Loop-thread only."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.all_messages = 0
        self.all_bytes = 0
        self._seen: dict[TopicPartition, tuple[Log, int, int]] = {}

    def look(self, logs: Mapping[TopicPartition, Log]) -> Iterator[None]:
        """Take in what was appended since the last look, a log a step; topics that are gone stay in the sum."""
        seen = {}
        for topic_partition, log in list(logs.items()):
            messages, size = log.appended_records, log.appended_bytes
            known = self._seen.get(topic_partition)
            before = known[1:] if known is not None and known[0] is log else (0, 0)
            topic = topic_partition.topic
            self.messages[topic] += messages - before[0]
            self.bytes[topic] += size - before[1]
            self.all_messages += messages - before[0]
            self.all_bytes += size - before[1]
            seen[topic_partition] = log, messages, size
            yield
        self._seen = seen
        here = {topic_partition.topic for topic_partition in logs}
        for topic in self.messages.keys() - here:
            del self.messages[topic], self.bytes[topic]
