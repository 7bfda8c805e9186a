"""One blocking connection to one broker, for code that runs inside Spark's processes, where no event loop is.

Requests may be pipelined: `send` as many as wanted, `receive` their responses in the same order.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Any

from ... import __version__
from ...protocol.apis import API_MESSAGES, ApiKey
from ...protocol.codec import decode_response, encode_request
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.headers import RequestHeader, decode_response_header, encode_request_header
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest
from ...protocol.negotiation import negotiate
from ...protocol.schema import UNBOUNDED, Versions
from ..connection import Connection
from ..errors import BrokerUnreachableError, ConnectionLostError, RequestTimeoutError, UnsupportedVersionError, code_of
from .security import Security, sasl_messages

_CLIENT_ID = "barnabas-spark"
_CONNECT_TIMEOUT_S = 10.0
_MAX_RESPONSE_BYTES = 1 << 30
_ROOM_BEHIND = 64
"""Bytes of memory behind a response, so that records in it can be decoded where they are."""
_RECEIVE_BUFFER_BYTES = 4 << 20


class BlockingConnection:
    """Connects when made. Raises BrokerUnreachableError, or what the first requests met."""

    def __init__(self, address: tuple[str, int], security: Security, timeout_s: float) -> None:
        self.address = f"{address[0]}:{address[1]}"
        self._timeout_s = timeout_s
        self._in_flight: deque[tuple[int, int, int]] = deque()
        self._correlation_id = 0
        self._versions: dict[int, Versions] = {}
        try:
            self._socket = socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=address[0])
        except OSError as error:
            raise BrokerUnreachableError(f"cannot reach broker at {self.address}: {error}") from error
        try:
            self._negotiate()
            if security.mechanism is not None:
                self._authenticate(security)
        except BaseException:
            self.close()
            raise

    def version_for(self, api_key: ApiKey, *, highest: int = UNBOUNDED) -> int:
        """The newest version both sides speak, up to `highest`. Raises UnsupportedVersionError."""
        ours, theirs = API_MESSAGES[api_key].versions, self._versions.get(api_key)
        version = None if theirs is None else negotiate(Versions(ours.first, min(ours.last, highest)), theirs)
        if version is None:
            raise UnsupportedVersionError(f"broker {self.address} does not serve {api_key.name} in a version we speak")
        return version

    def supports(self, api_key: ApiKey) -> bool:
        """Whether the broker serves this API."""
        return api_key in self._versions

    def ask(self, request: Any, *, highest: int = UNBOUNDED, wait_ms: int = 0) -> Any:
        """Send one request and wait for its response. Raises KafkaError."""
        self.send(request, highest=highest)
        return self.receive(wait_ms=wait_ms)

    def send(self, request: Any, *, highest: int = UNBOUNDED) -> None:
        """Write a request in the newest common version. Raises ConnectionLostError, UnsupportedVersionError."""
        api_key = Connection.api_key(request)
        self._send(request, api_key, self.version_for(api_key, highest=highest))

    def receive(self, *, wait_ms: int = 0) -> Any:
        """The response to the oldest request; `wait_ms` is what the broker was allowed to wait on top.

        Raises RequestTimeoutError or ConnectionLostError, after which the connection is closed.
        """
        frame = self._receive_frame(wait_ms)
        key, version, correlation_id = self._in_flight.popleft()
        try:
            found, position = decode_response_header(key, version, frame, 0, len(frame))
            if found != correlation_id:
                raise ProtocolError(f"correlation id {found} where {correlation_id} is due")
            if key == ApiKey.API_VERSIONS and _refused_version(frame, position):
                version = 0
            return decode_response(key, version, frame, position, len(frame))
        except ProtocolError as error:
            self.close()
            raise ConnectionLostError(f"broker {self.address} sent no legal response: {error}") from error

    def close(self) -> None:
        """End the connection; what is in flight is lost."""
        self._in_flight.clear()
        self._socket.close()

    def _send(self, request: Any, api_key: ApiKey, version: int) -> None:
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        header = encode_request_header(RequestHeader(api_key, version, self._correlation_id, _CLIENT_ID))
        body = encode_request(request, version)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(b"".join(((len(header) + len(body)).to_bytes(4, "big"), header, body)))
        except OSError as error:
            self.close()
            raise ConnectionLostError(f"broker {self.address}: {error}") from error
        self._in_flight.append((api_key, version, self._correlation_id))

    def _receive_frame(self, wait_ms: int) -> memoryview:
        try:
            self._socket.settimeout(self._timeout_s + wait_ms / 1000)
            size = int.from_bytes(self._receive_exactly(4), "big", signed=True)
            if not 0 <= size <= _MAX_RESPONSE_BYTES:
                raise OSError(f"a response of {size} bytes")
            return self._receive_exactly(size)
        except TimeoutError:
            self.close()
            raise RequestTimeoutError(f"broker {self.address} did not answer in time") from None
        except OSError as error:
            self.close()
            raise ConnectionLostError(f"broker {self.address}: {error}") from error

    def _receive_exactly(self, size: int) -> memoryview:
        view = memoryview(bytearray(size + _ROOM_BEHIND))[:size]
        position = 0
        while position < size:
            received = self._socket.recv_into(view[position:])
            if received == 0:
                raise OSError("the connection was closed")
            position += received
        return view

    def _negotiate(self) -> None:
        """Ask for the broker's versions; one that does not know our ApiVersions answers in version 0 (KIP-511)."""
        request = ApiVersionsRequest(client_software_name=_CLIENT_ID, client_software_version=__version__)
        for version in (API_MESSAGES[ApiKey.API_VERSIONS].versions.last, 0):
            self._send(request, ApiKey.API_VERSIONS, version)
            response = self.receive()
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(code_of(response.error_code), f"broker {self.address} refused to tell its versions")
        self._versions = {k.api_key: Versions(k.min_version, k.max_version) for k in response.api_keys}

    def _authenticate(self, security: Security) -> None:
        answer = self.ask(SaslHandshakeRequest(mechanism=security.mechanism or ""))
        if answer.error_code != ErrorCode.NONE:
            offered = ", ".join(answer.mechanisms)
            raise KafkaError(code_of(answer.error_code), f"broker {self.address} offers SASL mechanisms {offered}")
        messages = sasl_messages(security)
        data = next(messages)
        while True:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=data))
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError(code_of(answer.error_code), answer.error_message or "authentication failed")
            try:
                data = messages.send(answer.auth_bytes)
            except StopIteration:
                return


def _refused_version(frame: memoryview, position: int) -> bool:
    return int.from_bytes(frame[position : position + 2], "big") == ErrorCode.UNSUPPORTED_VERSION
