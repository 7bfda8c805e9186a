"""Feature levels of a cluster (KIP-584)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ...protocol.messages.api_versions import ApiVersionsResponse


class FeatureUpgradeType(IntEnum):
    """Kinds of a change, as in Kafka's FeatureUpdate.UpgradeType."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureLevel(NamedTuple):
    """The levels of a feature that a broker supports, and the finalized level of the cluster, 0 if it is disabled."""

    name: str
    supported_min: int
    supported_max: int
    finalized: int


def feature_levels(response: ApiVersionsResponse) -> list[FeatureLevel]:
    """Return the features in a response, sorted by name."""
    finalized = {one.name: one.max_version_level for one in response.finalized_features}
    return sorted(
        FeatureLevel(one.name, one.min_version, one.max_version, finalized.get(one.name, 0))
        for one in response.supported_features
    )
