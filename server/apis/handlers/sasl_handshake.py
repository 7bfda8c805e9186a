"""SaslHandshake (key 17, KIP-43): the client names a mechanism.

After version 0 SASL messages follow without headers, after 1 in SaslAuthenticate requests. A client that was admitted
for a while names its mechanism again before the time is over (KIP-368). On a listener without SASL it is an error.
"""

from __future__ import annotations

import asyncio

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ..request_context import RequestContext

BARE_VERSION = 0


async def handle(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
    """A client that names one that is not there hears which are, and is no longer served."""
    authentication = ctx.session.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        offered = await authentication.begin(request.mechanism, bare=ctx.api_version == BARE_VERSION)
    except KafkaError as error:
        return SaslHandshakeResponse(error_code=error.code)
    if offered is None:
        return SaslHandshakeResponse(mechanisms=list(authentication.mechanisms))
    await asyncio.sleep(authentication.failure_delay)
    ctx.respond(SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(offered)))
    ctx.close()
    return None
