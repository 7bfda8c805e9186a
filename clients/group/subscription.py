"""The subscription of a member: topics by name, or all whose name matches a pattern. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..cluster import ClusterView
from .listener import RebalanceListener


class Subscription:
    """The present topics; a pattern is matched with the metadata."""

    def __init__(
        self,
        topics: Iterable[str] = (),
        pattern: re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        self.topics = frozenset(topics)
        self.pattern = pattern
        self.listener = listener or RebalanceListener()

    def __bool__(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def match(self, cluster: ClusterView, *, exclude_internal: bool) -> bool:
        """Apply the pattern to the existing topics; return whether the result changed."""
        if self.pattern is None:
            return False
        matches = self.pattern.fullmatch
        found = frozenset(
            name
            for name, topic in cluster.topics.items()
            if topic.partitions and not (exclude_internal and topic.is_internal) and matches(name)
        )
        changed = found != self.topics
        self.topics = found
        return changed
