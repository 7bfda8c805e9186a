"""Faults for requests of transactions: lost requests, lost responses, and requests that are executed long after.

A connection breaks under the request. Who has sent it sees no more than that, asks again over another connection, and
may be done with the next transaction when the first request arrives (KIP-890).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from barnabas.protocol.apis import ApiKey
from barnabas.simulation.network import Stream

SAFE_LATE = frozenset({ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID})
"""The requests that the first protocol version may execute late, too: sequences detect them, or they are harmless."""
KEYS = SAFE_LATE | {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
}
CHANCE, CHANCE_OF_DESERTERS = 0.02, 0.3
LATEST = 3.0
"""Seconds that a late request takes at most."""
DESERTER = "deserter"
KEY_PLACE = slice(4, 6)


@dataclass
class LateRequests:
    """Stands between those who ask, clients and brokers, and the network."""

    random: random.Random
    faults: frozenset[str]
    """Which of `requests lost`, `answers lost` and `requests late` happen now and then."""

    is_v2: bool
    """Whether every transaction has an epoch of its own."""

    def meddle(self, stream: Stream, data: bytes) -> None:
        """Apply a fault to a connection over which `data` is sent next."""
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
