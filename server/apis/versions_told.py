"""What clients are told by ApiVersions: every one of them asks, most as the first thing of a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from ..metadata.cluster_features import FEATURES

if TYPE_CHECKING:
    from ...protocol.apis import ApiKey
    from ..metadata.cluster_features import ClusterFeatures
    from .table import Api


class VersionsTold:
    """Of one broker. Loop-thread only."""

    def __init__(self, served: Mapping[ApiKey, Api], features: ClusterFeatures) -> None:
        self._features = features
        self._served = [version_told(key, api) for key, api in sorted(served.items())]
        self._supported = [
            SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            for name, feature in FEATURES.items()
        ]
        self._supported_above_zero = [one for one in self._supported if one.min_version > 0]
        self._levels: list[int] = []
        self._finalized: list[FinalizedFeatureKey] = []
        """Those that have such a level."""

    def answer(self, *, takes_zero: bool) -> ApiVersionsResponse:
        """An answer whose rows are those of all others: nobody is to change them.

        `takes_zero`: the client understands features that may be at level 0.
        """
        levels = [self._features.level(name) for name in FEATURES]
        if levels != self._levels:
            self._levels = levels
            self._finalized = [
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in zip(FEATURES, levels, strict=True)
                if level
            ]
        return ApiVersionsResponse(
            api_keys=self._served,
            supported_features=self._supported if takes_zero else self._supported_above_zero,
            finalized_features_epoch=self._features.epoch,
            finalized_features=self._finalized,
        )


def version_told(key: ApiKey, api: Api) -> ApiVersion:
    """Of one API."""
    return ApiVersion(api_key=key, min_version=api.lowest, max_version=api.highest)
