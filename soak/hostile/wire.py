"""A blocking connection that can misbehave, and the listener and login for it."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from typing import NamedTuple

from tests.frames import framed, request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.headers import RequestHeader, encode_request_header
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl import sasl_exchange

RESPONSE_SECONDS = 30.0
PLAIN = "PLAIN"


class ClosedError(Exception):
    """A connection that the broker has closed."""


class Login(NamedTuple):
    """A user name, a password and a SASL mechanism."""

    user: str
    password: str
    mechanism: str = PLAIN


class Wire:
    """A blocking connection that can misbehave."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(address, RESPONSE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self._data = bytearray()
        self._login_responses = 0
        """The number of outstanding responses of a login."""

    def send(self, data: bytes | bytearray) -> None:
        """Send bytes. Raises ClosedError, TimeoutError."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            raise ClosedError from None

    def receive(self) -> bytes:
        """Return the next response without its length. Raises ClosedError, TimeoutError."""
        while self._login_responses:
            response = self._receive()
            assert response[4:6] == b"\0\0", f"login failed: {response[:200]!r}"
            self._login_responses -= 1
        return self._receive()

    def log_in_with_plain(self, login: Login) -> None:
        """Log in with PLAIN. Further requests need not wait for the responses of the login."""
        (message,) = sasl_exchange(PLAIN, login.user, login.password, "").messages
        self.send(request_frame(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=PLAIN)) + sasl_frame(message))
        self._login_responses = 2

    def log_in_with_scram(self, login: Login) -> None:
        """Log in with SCRAM."""
        messages = sasl_exchange(login.mechanism, login.user, login.password, "0123456789abcdef").messages
        self.send(request_frame(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=login.mechanism)))
        assert self.receive()[4:6] == b"\0\0", f"{login.mechanism} is not enabled"
        self.send(sasl_frame(next(messages)))
        frame = self.receive()
        response = decode_response(ApiKey.SASL_AUTHENTICATE, 1, frame, 4, len(frame))
        self.send(sasl_frame(messages.send(response.auth_bytes)))
        self._login_responses = 1

    def reset(self) -> None:
        """Close the connection with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def _receive(self) -> bytes:
        data = self._data
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            try:
                piece = self.socket.recv(1 << 20)
            except (ConnectionResetError, ssl.SSLEOFError):
                raise ClosedError from None
            if not piece:
                raise ClosedError
            data += piece
        end = 4 + int(struct.unpack_from(">i", data)[0])
        response = bytes(data[4:end])
        del data[:end]
        return response


class Endpoint:
    """A listener and a login; without a login, connections are unauthenticated."""

    def __init__(self, address: tuple[str, int], login: Login | None = None, ca: str | None = None) -> None:
        """`ca` is the file with the trusted certificates of a TLS listener."""
        self.address = address
        self.login = login
        self.ca = ca
        self._tls = ssl.create_default_context(cafile=ca) if ca is not None else None

    def text(self) -> str:
        """Return the listener and login as text, for a command line."""
        return json.dumps([self.address, self.login, self.ca])

    @classmethod
    def of(cls, text: str) -> Endpoint:
        """Parse the result of `text()`."""
        (host, port), login, ca = json.loads(text)
        return cls((host, port), Login(*login) if login is not None else None, ca)

    def connect(self) -> Wire:
        """Open a connection and log in, if there is a login. Raises ClosedError, TimeoutError."""
        wire = Wire(self.address, self._tls)
        if self.login is None:
            return wire
        if self.login.mechanism == PLAIN:
            wire.log_in_with_plain(self.login)
        else:
            wire.log_in_with_scram(self.login)
        return wire


def api_versions(correlation_id: int) -> bytes:
    """Return an ApiVersions request of version 0, the smallest request, with its length."""
    return framed(encode_request_header(RequestHeader(ApiKey.API_VERSIONS, 0, correlation_id, "probe")))


def sasl_frame(message: bytes) -> bytes:
    """Return a SASL message as a SaslAuthenticate request."""
    return request_frame(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=message))


def request_frame(key: ApiKey, request: object) -> bytes:
    """Return a request of version 1, with its length."""
    return framed(request_body(key, 1, request, correlation_id=0, client_id="known"))
