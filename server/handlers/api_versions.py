"""ApiVersions (key 18): what this broker serves, from the same table that dispatches requests.

A version that is too new is answered in version 0 with error 35 and, since Kafka 2.4, the versions of this very API, so
that the client can ask again. From version 3 on clients name their software (KIP-511). No features: this cluster has
none that clients must know of, and naming `transaction.version` would turn on protocols that are not served.
"""

from __future__ import annotations

import re

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ..apis import SERVED
from ..request_context import RequestContext

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
CLIENT_SOFTWARE_VERSION = 3


def handle(ctx: RequestContext, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """Lists all APIs; `request` is None if its version is too new to be read."""
    if request is None:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_version(ApiKey.API_VERSIONS)])
    if ctx.api_version >= CLIENT_SOFTWARE_VERSION and not (
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=[_version(key) for key in sorted(SERVED)])


def _version(key: ApiKey) -> ApiVersion:
    _, lowest, highest = SERVED[key]
    return ApiVersion(api_key=key, min_version=lowest, max_version=highest)
