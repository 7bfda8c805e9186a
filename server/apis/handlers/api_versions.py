"""ApiVersions (key 18): what this broker serves, from the same table that dispatches requests.

A version that is too new is answered in version 0 with error 35 and, since Kafka 2.4, the versions of this very API, so
that the client can ask again. From version 3 on clients name their software (KIP-511) and are told the cluster's
features (KIP-584); before version 4 those that may be at level 0 are left out of what is supported (KAFKA-17011).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....protocol.apis import ApiKey
from ....protocol.errors import ErrorCode
from ....protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ...metadata.cluster_features import FEATURES, ClusterFeatures
from ..request_context import RequestContext
from ..table import SERVED, Api

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
CLIENT_SOFTWARE_VERSION = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4
LONGEST_SOFTWARE = 64
"""Characters of its name and of its version that are remembered: every connection has them."""


def handle(
    ctx: RequestContext,
    request: ApiVersionsRequest | None,
    *,
    features: ClusterFeatures,
    served: Mapping[ApiKey, Api],
) -> ApiVersionsResponse:
    """Lists all APIs that this broker serves; `request` is None if its version is too new for us."""
    if request is None:
        own = _version(ApiKey.API_VERSIONS, SERVED[ApiKey.API_VERSIONS])
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    if ctx.api_version >= CLIENT_SOFTWARE_VERSION and not (
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if ctx.api_version >= CLIENT_SOFTWARE_VERSION:
        name, version = request.client_software_name, request.client_software_version
        ctx.session.software = (name[:LONGEST_SOFTWARE], version[:LONGEST_SOFTWARE])
    takes_zero = ctx.api_version >= FIRST_VERSION_WITH_LEVEL_ZERO
    return ApiVersionsResponse(
        api_keys=[_version(key, api) for key, api in sorted(served.items())],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            for name, feature in FEATURES.items()
            if feature.lowest > 0 or takes_zero
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name in FEATURES
            if (level := features.level(name))
        ],
    )


def _version(key: ApiKey, api: Api) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=api.lowest, max_version=api.highest)
