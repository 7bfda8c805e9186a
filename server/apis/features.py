"""Features of the cluster that clients must know of (KIP-584), told by ApiVersions."""

from __future__ import annotations

from typing import NamedTuple

EPOCH = 0
"""Of the finalized levels, which this cluster does not change."""


class Feature(NamedTuple):
    """Which levels a feature can have here, and which it has."""

    lowest: int
    highest: int
    level: int


FEATURES: dict[str, Feature] = {
    "group.version": Feature(0, 1, 1),
}
"""`group.version` 1 is the consumer protocol for groups (KIP-848)."""
