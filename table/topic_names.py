"""The topics that are followed, and their partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..arrow.client import BlockingClient
from ..arrow.topic_source import find_partitions
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from . import host

_REFRESH_S = 2.0
_MISSING_S = 15.0
"""Seconds for which a topic may be missing: a broker that has just started does not have all topics yet."""


class TopicNames:
    """Topics by name, or all topics whose whole name a regular expression matches, without internal ones."""

    def __init__(
        self, client: BlockingClient, topics: Sequence[str], *, is_pattern: bool, without: str | None = None
    ) -> None:
        """Raises ValueError for an invalid expression. `without` is a topic that the expression does not select."""
        self._without = without
        self._client = client
        self._names = list(topics)
        self._pattern: re.Pattern[str] | None = None
        if is_pattern:
            try:
                (text,) = topics
                self._pattern = re.compile(text)
            except re.error as error:
                raise ValueError(f"pattern {topics[0]!r}: {error}") from None
        self._refreshed_at = host.monotonic() - _REFRESH_S
        self._missing_since: float | None = None
        self.found: list[str] = []
        """The names of the topics."""

    def refresh(self, *, force: bool = False) -> None:
        """Request the topics every few seconds. Raises ValueError for a missing topic, KafkaError."""
        if not force and host.monotonic() < self._refreshed_at + _REFRESH_S:
            return
        if self._pattern is None:
            self._find(force=force)
        else:
            self._client.refresh(None)
            self.found = sorted(
                name
                for name, topic in self._client.cluster.topics.items()
                if self._pattern.fullmatch(name)
                and topic.partitions
                and not name.startswith("__")
                and name != self._without
            )
        self._refreshed_at = host.monotonic()

    def _find(self, *, force: bool) -> None:
        try:
            find_partitions(self._client, self._names, None)
        except ValueError as error:
            self._missing_since = self._missing_since or host.monotonic()
            if force or host.monotonic() > self._missing_since + _MISSING_S:
                raise
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from None
        self._missing_since = None
        self.found = self._names

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions as of the last refresh."""
        topics = self._client.cluster.topics
        return [TopicPartition(name, index) for name in self.found for index in sorted(topics[name].partitions)]
