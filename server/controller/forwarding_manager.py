"""Kafka's ForwardingManager: sends requests of clients to the active controller of a KRaft cluster (KIP-590).

An Envelope contains the client's request with its header, the principal of the client and its address. The controller
checks the client's ACLs, and its response is the response to the client.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Protocol

from ...protocol.apis import api_key_of
from ...protocol.codec import decode_response, encode_request
from ...protocol.default_principal_data import encode_principal
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError, code_of
from ...protocol.headers import RequestHeader, decode_response_header, encode_request_header
from ...protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ...protocol.schema import UNBOUNDED

if TYPE_CHECKING:
    from ..security.session import Session


class SendToController(Protocol):
    """Sends a request to the active controller and returns its response. Raises KafkaError without a response."""

    async def __call__(self, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any: ...


class ForwardingManager:
    """Forwards requests on the connection of the broker to the active controller. Used on the loop's thread."""

    def __init__(self, send_request: SendToController) -> None:
        """`send_request` finds the active controller and repeats the request until its timeout."""
        self._send_request = send_request

    async def forward_request(self, session: Session, version: int, request: Any, *, client_id: str | None) -> Any:
        """Return the controller's response to a request of a client.

        Raises KafkaError: UNSUPPORTED_VERSION if the controller does not support the version, UNKNOWN_SERVER_ERROR for
        an Envelope that the controller refuses, and the errors of a request without a response.
        """
        key = api_key_of(request.__class__)
        header = encode_request_header(RequestHeader(key, version, 0, client_id))
        envelope = EnvelopeRequest(
            request_data=header + encode_request(request, version),
            request_principal=encode_principal(
                session.principal.kind, session.principal.name, is_token_authenticated=session.is_by_token
            ),
            client_host_address=_packed(session.client_host),
        )
        response: EnvelopeResponse = await self._send_request(envelope)
        error = code_of(response.error_code)
        if error is not ErrorCode.NONE:
            # A client must not take an error of the broker's own authentication for one of the client's.
            is_version = error is ErrorCode.UNSUPPORTED_VERSION
            raise KafkaError(error if is_version else ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller: {error.name}")
        data = response.response_data or b""
        try:
            _, start = decode_response_header(key, version, data, 0, len(data))
            return decode_response(key, version, data, start, len(data))
        except ProtocolError as failure:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller's response: {failure}") from failure


def _packed(host: str) -> bytes:
    """Return the bytes of an address; the unspecified address of a transport without addresses."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return ipaddress.IPv4Address(0).packed
