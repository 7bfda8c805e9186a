"""The contents of ApiVersions responses (Kafka's ApiVersionManager)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from ..metadata.cluster_features import FEATURES

if TYPE_CHECKING:
    from ...protocol.apis import ApiKey
    from ..metadata.cluster_features import Features
    from .table import Api


class ApiVersionManager:
    """The served APIs and the features of one broker, as ApiVersions responses list them.

    The lists are built once and shared by all responses: most connections begin with an ApiVersions request. Only the
    finalized features change. Used on the event loop's thread only.
    """

    def __init__(self, served: Mapping[ApiKey, Api], features: Features) -> None:
        self._features = features
        self._api_keys = [api_version_range(key, api) for key, api in sorted(served.items())]
        self._supported = [
            SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            for name, feature in FEATURES.items()
        ]
        self._supported_above_zero = [feature for feature in self._supported if feature.min_version > 0]
        self._levels: list[int] = []
        self._finalized: list[FinalizedFeatureKey] = []
        """The features at a level above 0."""

    def response(self, *, supports_level_zero: bool) -> ApiVersionsResponse:
        """Return a response whose lists are shared with other responses and must not be changed.

        `supports_level_zero`: the client accepts features whose lowest level is 0 (KAFKA-17011).
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
            api_keys=self._api_keys,
            supported_features=self._supported if supports_level_zero else self._supported_above_zero,
            finalized_features_epoch=self._features.epoch,
            finalized_features=self._finalized,
        )


def api_version_range(key: ApiKey, api: Api) -> ApiVersion:
    """Return the lowest and highest served version of one API."""
    return ApiVersion(api_key=key, min_version=api.lowest, max_version=api.highest)
