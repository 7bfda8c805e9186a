"""Kafka's ForwardingManager: sends requests of clients to the active controller of a KRaft cluster (KIP-590).

An Envelope contains the client's request with its header, the principal of the client and its address. The controller
checks the client's ACLs, and its response is the response to the client.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey, api_key_of
from ...protocol.codec import decode_response, encode_request
from ...protocol.default_principal_data import encode_principal
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError, code_of
from ...protocol.headers import RequestHeader, decode_response_header, encode_request_header
from ...protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ...protocol.schema import UNBOUNDED, Buffer, Versions

if TYPE_CHECKING:
    from ..runtime.ports import Work
    from ..security.session import Session

logger = room_logger("controller")

LANE = "forwarding"
ENCODED_IN_LANE_BYTES = 1 << 15
"""A larger request is encoded in a lane: each takes up to 0.1 s or more."""
DECODED_IN_LANE_BYTES = 1 << 15
"""A larger response is decoded in a lane: the results of ten thousand partitions take 20 ms."""
MAX_FORWARDED_BYTES = 16 << 20
"""The limit for one request. Kafka's limit is `socket.request.max.bytes` (100 MB) of the controller, which closes the
connection for a larger request, with the requests of all other clients in flight. A reassignment of 200 000 partitions
has 6 MB.
"""
REPEATED_BYTES = 1 << 20
"""A larger request is not repeated when its connection is lost: it may exceed `socket.request.max.bytes` of the
controller, and the requests of other clients would be lost with each attempt.
"""
PASSED_ON = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
"""The errors of a request without a response that a client may receive."""


class SendToController(Protocol):
    """Sends a request to the active controller and returns its response. Raises KafkaError without a response."""

    async def __call__(self, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any: ...


class SendEnvelope(Protocol):
    """`NodeToControllerChannelManager.send_request`."""

    async def __call__(self, request: Any, *, max_losses: int | None = None, attempts_ms: int | None = None) -> Any: ...


class ForwardingManager:
    """Forwards requests on the connection of the broker to the active controller. Used on the loop's thread."""

    def __init__(
        self,
        send_request: SendEnvelope,
        controller_api_versions: Callable[[], Mapping[int, Versions] | None],
        work: Work,
    ) -> None:
        """`send_request` finds the active controller and repeats the request until its timeout."""
        self._send_request = send_request
        self._controller_api_versions = controller_api_versions
        self._work = work

    @property
    def controller_api_versions(self) -> Mapping[int, Versions] | None:
        """The versions that the active controller supports, by API key; None before the first connection to it."""
        return self._controller_api_versions()

    async def forward_request(
        self, session: Session, version: int, request: Any, *, client_id: str | None, size: int
    ) -> Any:
        """Return the controller's response to a request of a client, whose frame has `size` bytes.

        Raises KafkaError: UNSUPPORTED_VERSION if the controller does not support the version, UNKNOWN_SERVER_ERROR for
        an Envelope that the controller refuses and for a failed authentication of the broker, INVALID_REQUEST for a
        request above `MAX_FORWARDED_BYTES`, REQUEST_TIMED_OUT or NETWORK_EXCEPTION without a response. A request with a
        timeout is not sent to the controller after it.
        """
        if size > MAX_FORWARDED_BYTES:
            text = f"A request to the controller may have {MAX_FORWARDED_BYTES} bytes, this request has {size} bytes."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        key = api_key_of(request.__class__)
        encode = partial(_encoded, RequestHeader(key, version, 0, client_id), request)
        envelope = EnvelopeRequest(
            request_data=await self._work.run(LANE, encode) if size > ENCODED_IN_LANE_BYTES else encode(),
            request_principal=encode_principal(
                session.principal.kind, session.principal.name, is_token_authenticated=session.is_by_token
            ),
            client_host_address=_packed(session.client_host),
        )
        try:
            max_losses = 1 if size > REPEATED_BYTES else None
            # No topic must be created, when the controllers are back, for a client that has given up. With a timeout of
            # 0 a client only does not wait for the end of an operation.
            attempts_ms = getattr(request, "timeout_ms", 0)
            response: EnvelopeResponse = await self._send_request(
                envelope, max_losses=max_losses, attempts_ms=attempts_ms if attempts_ms > 0 else None
            )
        except KafkaError as failure:
            if failure.code in PASSED_ON:
                raise
            # A client must not take an error of the broker's own authentication for its own.
            logger.error("cannot forward a request to the controller: %s", failure)
            text = "The broker cannot send requests to the controller."
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from failure
        error = code_of(response.error_code)
        if error is not ErrorCode.NONE:
            is_version = error is ErrorCode.UNSUPPORTED_VERSION
            raise KafkaError(
                error if is_version else ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller returned {error.name}"
            )
        data = response.response_data or b""
        decode = partial(_decoded, key, version, data)
        try:
            return await self._work.run(LANE, decode) if len(data) > DECODED_IN_LANE_BYTES else decode()
        except ProtocolError as failure:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller's response: {failure}") from failure


def _encoded(header: RequestHeader, request: Any) -> bytes:
    return encode_request_header(header) + encode_request(request, header.api_version)


def _decoded(key: ApiKey, version: int, data: Buffer) -> Any:
    _, start = decode_response_header(key, version, data, 0, len(data))
    return decode_response(key, version, data, start, len(data))


def _packed(host: str) -> bytes:
    """Return the bytes of an address; the unspecified address of a transport without addresses."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return ipaddress.IPv4Address(0).packed
