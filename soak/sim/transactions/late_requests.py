"""Faults for requests of transactions: lost requests, lost responses, and requests that are executed late.

In each case the sender receives a connection error and repeats the request over another connection. A late request may
arrive after the sender has finished its next transaction (KIP-890).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from barnabas.protocol.apis import ApiKey
from barnabas.simulation.network import Stream

SAFE_LATE = frozenset({ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID})
"""The requests that may also be late in transaction version 1: sequence numbers detect them, or they are harmless."""
KEYS = SAFE_LATE | {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
}
CHANCE, CHANCE_OF_DESERTERS = 0.02, 0.3
LATEST = 3.0
"""The longest delay of a late request, in seconds."""
DESERTER = "deserter"
KEY_PLACE = slice(4, 6)


@dataclass
class LateRequests:
    """A fault that breaks the connection of some requests of clients and brokers."""

    random: random.Random
    faults: frozenset[str]
    """The possible faults, of `requests lost`, `answers lost` and `requests late`."""

    is_v2: bool
    """Whether every transaction has a separate producer epoch."""

    def meddle(self, stream: Stream, data: bytes) -> None:
        """Break the connection over which `data` is about to be sent, or do nothing."""
        key = int.from_bytes(data[KEY_PLACE])
        chance = CHANCE_OF_DESERTERS if stream.node.name.startswith(DESERTER) else CHANCE
        if key not in KEYS or self.random.random() >= chance:
            return
        kind = self.random.choice(sorted(self.faults))
        if kind == "requests lost":
            stream.reset()
        elif kind == "answers lost":
            stream.turn_deaf()
        elif self.is_v2 or key in SAFE_LATE:
            stream.abandon(self.random.random() * LATEST)
