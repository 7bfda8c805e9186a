"""SaslAuthenticate (key 36, KIP-152): one message of an authentication, and the broker's answer to it.

Version 1 tells for how long the client is believed (KIP-368). A client that fails hears it after a while
(`connection.failed.authentication.delay.ms`) and is then no longer served.
"""

from __future__ import annotations

import asyncio

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ..request_context import RequestContext


async def handle(ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse | None:
    """On a listener without SASL, or out of turn, it is an error."""
    authentication = ctx.session.authentication
    if authentication is None:
        text = "SaslAuthenticate request received on a listener without SASL"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text)
    try:
        answer, lifetime_ms = await authentication.go_on(ctx.session, bytes(request.auth_bytes))
    except KafkaError as error:
        response = SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
        if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
            return response
        await asyncio.sleep(authentication.failure_delay)
        ctx.respond(response)
        ctx.close()
        return None
    return SaslAuthenticateResponse(error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)
