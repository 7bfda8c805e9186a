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
        for topic_partition in list(logs):
            log = logs.get(topic_partition)
            if log is None:
                continue
            now = self._seen.get(topic_partition)
            before = now[1:] if now is not None and now[0] is log else (0, 0)
            messages, size = log.appended_records - before[0], log.appended_bytes - before[1]
            if now is None or messages or size or now[0] is not log:
                topic = topic_partition.topic
                self.messages[topic] += messages
                self.bytes[topic] += size
                self.all_messages += messages
                self.all_bytes += size
                now = log, log.appended_records, log.appended_bytes
            seen[topic_partition] = now
            yield
        self._seen = seen
        here = {topic_partition.topic for topic_partition in logs}
        for topic in self.messages.keys() - here:
            del self.messages[topic], self.bytes[topic]
