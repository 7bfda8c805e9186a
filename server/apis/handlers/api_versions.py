"""ApiVersions (key 18): the served APIs and versions, from the table that dispatches requests.

The response to a version that is too new has version 0, error 35 and, since Kafka 2.4, the versions of ApiVersions, so
that the client can repeat its request. From version 3 on clients send their software name and version (KIP-511) and
receive the features of the cluster (KIP-584). Before version 4 the supported features omit the features whose lowest
level is 0 (KAFKA-17011). From version 5 on a client may state the cluster and the broker that it expects (KIP-1242),
and any other broker responds with REBOOTSTRAP_REQUIRED: the client reached an address that has a new owner.
"""

from __future__ import annotations

import re

from ....protocol.apis import ApiKey
from ....protocol.errors import ErrorCode
from ....protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...config.config_repository import ConfigRepository
from ...metadata.metadata_cache import MetadataCache
from ..api_version_manager import ApiVersionManager, api_version_range
from ..request_context import RequestContext
from ..table import SERVED

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
CLIENT_SOFTWARE_VERSION = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4
FIRST_VERSION_WITH_CLUSTER_ID = 5
NO_NODE_ID = -1
LONGEST_SOFTWARE = 64
"""Characters kept of the name and the version of client software: every connection has them."""


def handle(
    ctx: RequestContext,
    request: ApiVersionsRequest | None,
    *,
    api_version_manager: ApiVersionManager,
    config_repository: ConfigRepository,
    metadata_cache: MetadataCache,
) -> ApiVersionsResponse:
    """Return the served APIs; `request` is None if its version is not served."""
    if request is None:
        own = api_version_range(ApiKey.API_VERSIONS, SERVED[ApiKey.API_VERSIONS])
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    if ctx.api_version >= FIRST_VERSION_WITH_CLUSTER_ID and (
        (request.cluster_id is None) != (request.node_id == NO_NODE_ID)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if ctx.api_version >= CLIENT_SOFTWARE_VERSION and not (
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if ctx.api_version >= FIRST_VERSION_WITH_CLUSTER_ID and request.cluster_id is not None:
        here = (metadata_cache.cluster_id, config_repository.broker_id)
        if (request.cluster_id, request.node_id) != here:
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    if ctx.api_version >= CLIENT_SOFTWARE_VERSION:
        name, version = request.client_software_name, request.client_software_version
        ctx.session.software = (name[:LONGEST_SOFTWARE], version[:LONGEST_SOFTWARE])
    return api_version_manager.response(supports_level_zero=ctx.api_version >= FIRST_VERSION_WITH_LEVEL_ZERO)
