"""Data of the broker in the same process that no Kafka API returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class OwnBroker(Protocol):
    """Methods are called on the console's loop, and switch to the broker's loop if necessary. Raises KafkaError.

    A Protocol because the tools do not depend on the server, which implements it.
    """

    async def totals(self) -> Mapping[str, float]:
        """Return `bytes_in` and `bytes_out` since the broker's start; empty without measurements."""
        ...

    async def requests(self) -> Sequence[Mapping[str, object]]:
        """Return a row for each requested API: the number of requests, and their times in ms by phase and quantile."""
        ...

    async def slow_requests(self) -> Sequence[Mapping[str, object]]:
        """Return the slowest single requests of the last minutes, first: request, client, and ms per phase."""
        ...

    async def on_disk(self, topic: str, first: int) -> Mapping[str, object]:
        """Return logs of a topic on this broker's disk, from a partition on, and the state of the cleaner."""
        ...

    async def compact(self, topic: str, partition: int) -> Mapping[str, object]:
        """Compact one partition now; returns when that is complete."""
        ...

    async def tombstones(self, topic: str, partition: int, first: int) -> Mapping[str, object]:
        """Return the number of tombstones in a log's segments, from a base offset on, and the offset to continue at."""
        ...
