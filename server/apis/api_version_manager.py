"""The contents of ApiVersions responses (Kafka's ApiVersionManager)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from ...protocol.apis import ApiKey
from ...protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from ..metadata.cluster_features import FEATURES

if TYPE_CHECKING:
    from ...protocol.schema import Versions
    from ..metadata.cluster_features import Features
    from .table import Api


class ApiVersionManager:
    """The served APIs and the features of one broker, as ApiVersions responses list them.

    The lists are built once and shared by all responses: most connections begin with an ApiVersions request. Only the
    finalized features change. Used on the event loop's thread only.
    """

    def __init__(
        self,
        served: Mapping[ApiKey, Api],
        features: Features,
        *,
        forwarded: Collection[ApiKey] = (),
        controller_api_versions: Callable[[], Mapping[int, Versions] | None] = lambda: None,
    ) -> None:
        """`forwarded` APIs have only versions that the active controller supports, too, as far as these are known.

        Kafka's NodeApiVersions.intersectForwardableApis.
        """
        self._features = features
        self._forwarded = frozenset(forwarded)
        self._controller_api_versions = controller_api_versions
        self._controller_versions: Mapping[int, Versions] | None = None
        self._all_api_keys = [api_version_range(key, api) for key, api in sorted(served.items())]
        self._api_keys = self._all_api_keys
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
        versions = self._controller_api_versions()
        if versions is not self._controller_versions:
            self._controller_versions = versions
            self._api_keys = self._all_api_keys if versions is None else self._intersected(versions)
        return ApiVersionsResponse(
            api_keys=self._api_keys,
            supported_features=self._supported if supports_level_zero else self._supported_above_zero,
            finalized_features_epoch=self._features.epoch,
            finalized_features=self._finalized,
        )

    def _intersected(self, controller: Mapping[int, Versions]) -> list[ApiVersion]:
        """Return the listed APIs without versions of forwarded APIs that the controller does not support."""
        listed = []
        for one in self._all_api_keys:
            lowest, highest = one.min_version, one.max_version
            if ApiKey(one.api_key) in self._forwarded:
                versions = controller.get(one.api_key)
                if versions is None:
                    continue
                lowest, highest = max(lowest, versions.first), min(highest, versions.last)
            if lowest <= highest:
                listed.append(ApiVersion(api_key=one.api_key, min_version=lowest, max_version=highest))
        return listed


def api_version_range(key: ApiKey, api: Api) -> ApiVersion:
    """Return the lowest and highest served version of one API."""
    return ApiVersion(api_key=key, min_version=api.lowest, max_version=api.highest)
