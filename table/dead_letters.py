"""Unreadable records in a dead-letter topic, with headers that name their origin, as Kafka Connect writes them.

The records are acknowledged before the table commits the offsets after them. If that commit fails, or the follower
crashes before it, the records are written again: consumers of the dead-letter topic recognize such duplicates by the
headers with the topic, partition and offset.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..clients.producer import Producer
from ..clients.security import security_of

if TYPE_CHECKING:
    from .follower import FollowSettings

_PREFIX = "__connect.errors."
_BATCH = 1000
"""Number of records that are sent before the producer waits for their acknowledgements."""


class DeadLetterWriter:
    """Unreadable records that wait in memory for the next commit. The dead-letter topic must exist."""

    def __init__(self, settings: FollowSettings) -> None:
        assert settings.dead_letter_topic is not None
        self._topic = settings.dead_letter_topic
        self._bootstrap = settings.bootstrap
        self._security = security_of(settings.config)
        self._waiting: list[Any] = []

    def add(self, rejected: Any) -> None:
        """Add a record batch with all fields of the records as bytes, and a column `error`."""
        self._waiting.append(rejected)

    def flush(self) -> int:
        """Write the records and wait for their acknowledgements; return their number. Raises KafkaError."""
        if not self._waiting:
            return 0
        count = asyncio.run(self._write())
        self._waiting = []
        return count

    def discard(self) -> None:
        """Drop the records, which will be read again."""
        self._waiting = []

    async def _write(self) -> int:
        count = 0
        async with Producer(self._bootstrap, client_id="barnabas-table", security=self._security) as producer:
            for batch in self._waiting:
                for start in range(0, batch.num_rows, _BATCH):
                    sent = [
                        await producer.send(self._topic, row["value"], key=row["key"], headers=_headers(row))
                        for row in batch.slice(start, _BATCH).to_pylist()
                    ]
                    await asyncio.gather(*sent)
                    count += len(sent)
        return count


def _headers(row: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    own = [(header["key"], header["value"]) for header in row["headers"] or ()]
    origin = {
        "topic": row["topic"],
        "partition": str(row["partition"]),
        "offset": str(row["offset"]),
        "exception.message": row["error"],
    }
    return [*own, *((_PREFIX + name, str(value).encode()) for name, value in origin.items())]
