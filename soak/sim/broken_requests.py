"""Requests of some APIs that are lost, executed without a response, or executed seconds after their connection broke.

The sender receives a connection error in each case, and repeats the request over another connection.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from barnabas.protocol.apis import ApiKey
from barnabas.simulation.network import Stream

BROKEN_REQUESTS = ("requests lost", "answers lost", "requests late")
CHANCE = 0.02
LATEST = 3.0
"""The longest delay of a late request, in seconds."""
KEY_PLACE = slice(4, 6)


@dataclass
class BrokenRequests:
    """A fault that breaks the connection of some requests of clients and brokers."""

    random: random.Random
    faults: Collection[str]
    """Names from `BROKEN_REQUESTS`."""
    keys: Collection[ApiKey]

    def meddle(self, stream: Stream, data: bytes) -> None:
        """Break the connection over which `data` is about to be sent, or do nothing."""
        if int.from_bytes(data[KEY_PLACE]) not in self.keys or self.random.random() >= CHANCE:
            return
        kind = self.random.choice(sorted(self.faults))
        if kind == "requests lost":
            stream.reset()
        elif kind == "answers lost":
            stream.turn_deaf()
        else:
            stream.abandon(self.random.random() * LATEST)
