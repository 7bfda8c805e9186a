"""Features of the cluster that clients must know of (KIP-584), told by ApiVersions."""

from __future__ import annotations

from typing import NamedTuple

from ..coordinator.transaction.metadata import TRANSACTION_VERSION

EPOCH = 0
"""Of the finalized levels, which this cluster does not change."""


class Feature(NamedTuple):
    """Which levels a feature can have here, and which it has; None for one that has none in such a cluster."""

    lowest: int
    highest: int
    level: int | None


FEATURES: dict[str, Feature] = {
    "metadata.version": Feature(7, 27, None),
    "group.version": Feature(0, 1, 1),
    "transaction.version": Feature(0, 2, TRANSACTION_VERSION),
}
"""`metadata.version` are those of Kafka 4.1; where ZooKeeper has the metadata, as here, no level of it is finalized.
`group.version` 1 is the consumer protocol for groups (KIP-848), `transaction.version` 2 an epoch for each transaction
(KIP-890)."""
