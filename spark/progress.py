"""A line for every finished micro-batch of a streaming job."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from .error_messages import error_reason
from .offsets import StreamOffsets


class ProgressListener(StreamingQueryListener):
    """Calls `tell` with one line for every batch with rows, and with the reason why a query ended."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._names: dict[Any, str] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name
        name = self._names[event.id] = event.name or str(event.id)
        self._tell(f"{name}: started")

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Ignore the start."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  # Spark's name
        name = self._names.pop(event.id, event.id)
        self._tell(f"{name}: " + ("done" if event.exception is None else f"failed: {error_reason(event.exception)}"))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  # Spark's name
        progress = event.progress
        if progress.numInputRows:
            rate = progress.processedRowsPerSecond or 0
            self._tell(
                f"{progress.name or progress.id}: batch {progress.batchId}, {progress.numInputRows:,} records, "
                f"{rate:,.0f}/s, {_waiting(progress):,} waiting"
            )


def _waiting(progress: Any) -> int:
    """Return the offsets between the end of the batch and the end of the topics at that time."""
    total = 0
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        total += sum(max(0, offset - ends.get(tp, 0)) for tp, offset in latest.items())
    return total


def _offsets(text: str | None) -> dict[Any, int]:
    try:
        return dict(StreamOffsets.of_json(json.loads(text or "{}")).offsets)
    except (ValueError, AttributeError):
        return {}
