"""What the broker in the same process can tell a console, and no protocol of Kafka's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class OwnBroker(Protocol):
    """Methods are called on the console's loop, whichever loop the broker is on. Raises KafkaError."""

    async def totals(self) -> Mapping[str, float]:
        """Since the broker's start: `bytes_in` and `bytes_out`; empty if it does not measure."""
        ...

    async def requests(self) -> Sequence[Mapping[str, object]]:
        """A row for each API that was asked for: how often, and how long it took, in ms by phase and quantile."""
        ...

    async def slow_requests(self) -> Sequence[Mapping[str, object]]:
        """The slowest single requests of the last minutes, first: what, who, and how long in which phase, in ms."""
        ...

    async def on_disk(self, topic: str, first: int) -> Mapping[str, object]:
        """Logs of a topic as they lie on this broker's disk, from a partition on, and what the cleaner does there."""
        ...

    async def compact(self, topic: str, partition: int) -> Mapping[str, object]:
        """Have one partition compacted now; answers when that is done."""
        ...

    async def tombstones(self, topic: str, partition: int, first: int) -> Mapping[str, object]:
        """How many records of a log's segments are tombstones, from a base offset on, and where to go on."""
        ...
