"""SaslHandshake (key 17, KIP-43): the client names a mechanism.

After version 0 the client sends SASL messages without headers, after 1 in SaslAuthenticate requests. It sends
SaslHandshake again before its session expires (KIP-368). On a listener without SASL the request is an error.
"""

from __future__ import annotations

import asyncio

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ..request_context import RequestContext

BARE_VERSION = 0


async def handle(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Respond with the enabled mechanisms to an unknown mechanism, and close the connection."""
    authentication = ctx.session.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        offered = await authentication.begin_exchange(request.mechanism, raw=ctx.api_version == BARE_VERSION)
    except KafkaError as error:
        return SaslHandshakeResponse(error_code=error.code)
    if offered is None:
        return SaslHandshakeResponse(mechanisms=list(authentication.mechanisms))
    await asyncio.sleep(authentication.failure_delay)
    ctx.close_after_response()
    return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(offered))
