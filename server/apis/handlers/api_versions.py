"""ApiVersions (key 18): what this broker serves, from the same table that dispatches requests.

A version that is too new is answered in version 0 with error 35 and, since Kafka 2.4, the versions of this very API, so
that the client can ask again. From version 3 on clients name their software (KIP-511) and are told the cluster's
features (KIP-584); before version 4 those that may be at level 0 are left out of what is supported (KAFKA-17011).
"""

from __future__ import annotations

import re

from ....protocol.apis import ApiKey
from ....protocol.errors import ErrorCode
from ....protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..request_context import RequestContext
from ..table import SERVED
from ..versions_told import VersionsTold, version_told

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
CLIENT_SOFTWARE_VERSION = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4
LONGEST_SOFTWARE = 64
"""Characters of its name and of its version that are remembered: every connection has them."""


def handle(ctx: RequestContext, request: ApiVersionsRequest | None, *, versions: VersionsTold) -> ApiVersionsResponse:
    """Lists all APIs that this broker serves; `request` is None if its version is too new for us."""
    if request is None:
        own = version_told(ApiKey.API_VERSIONS, SERVED[ApiKey.API_VERSIONS])
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    if ctx.api_version >= CLIENT_SOFTWARE_VERSION and not (
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if ctx.api_version >= CLIENT_SOFTWARE_VERSION:
        name, version = request.client_software_name, request.client_software_version
        ctx.session.software = (name[:LONGEST_SOFTWARE], version[:LONGEST_SOFTWARE])
    return versions.answer(takes_zero=ctx.api_version >= FIRST_VERSION_WITH_LEVEL_ZERO)
