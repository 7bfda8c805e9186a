"""SaslAuthenticate (key 36, KIP-152): one message of an authentication.

Version 1 returns the lifetime of the session (KIP-368). The response to a failed authentication is delayed by
`connection.failed.authentication.delay.ms`, and the connection is then closed.
"""

from __future__ import annotations

import asyncio

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ..request_context import RequestContext


async def handle(ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Authenticate the session. A request on a listener without SASL, or without SaslHandshake, is an error."""
    authentication = ctx.session.authentication
    if authentication is None:
        text = "SaslAuthenticate request received on a listener without SASL"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text)
    try:
        answer, lifetime_ms = await authentication.evaluate_response(ctx.session, bytes(request.auth_bytes))
    except KafkaError as error:
        response = SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
        if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
            return response
        await asyncio.sleep(authentication.failure_delay)
        ctx.close_after_response()
        return response
    # Kafka's message of a success is empty: clients that expect a string fail at null.
    return SaslAuthenticateResponse(error_message="", auth_bytes=answer, session_lifetime_ms=lifetime_ms)
