"""One blocking connection to one broker, for threads and processes without an event loop.

A socket around `protocol.client_connection`. Requests may be pipelined: `send` any number, then `receive` their
responses in the same order.
"""

from __future__ import annotations

import socket
from collections import deque
from math import inf
from typing import Any

from .. import __version__
from ..clients.errors import BrokerUnreachableError
from ..clients.security import Security
from ..protocol.apis import ApiKey, api_key_of
from ..protocol.client_connection import ClientConnection, Introduction
from ..protocol.codec import encode_request
from ..protocol.errors import ConnectionLostError, RequestTimeoutError
from ..protocol.schema import UNBOUNDED, Buffer
from .host import monotonic

CLIENT_ID = "barnabas-arrow"
_CONNECT_TIMEOUT_S = 10.0
_MAX_RESPONSE_BYTES = 1 << 30
_ROOM_BEHIND = 64
"""Bytes of memory after a response, so that records in it can be decoded in place."""
_RECEIVE_BUFFER_BYTES = 4 << 20
_BEFORE_THE_END = 0.85
"""Share of a session's lifetime after which it is renewed."""


class BlockingConnection:
    """Connects in the constructor. Raises BrokerUnreachableError, or the error of the first requests."""

    def __init__(
        self, address: tuple[str, int], security: Security, timeout_s: float, *, client_id: str = CLIENT_ID
    ) -> None:
        self.address = f"{address[0]}:{address[1]}"
        self._timeout_s = timeout_s
        self._security, self._host = security, address[0]
        self.is_silent = False
        """Whether a wait for a response has timed out."""
        self._renew_at = inf
        self._answers: deque[Any] = deque()
        self._core: ClientConnection[object] = ClientConnection(
            self.address,
            Introduction(client_id, client_id, __version__),
            max_response_bytes=_MAX_RESPONSE_BYTES,
            sasl=security.exchange(address[0]),
            room_behind=_ROOM_BEHIND,
        )
        try:
            self._socket = socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=address[0])
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise BrokerUnreachableError(f"cannot reach broker at {self.address}: {reason}") from error
        self._core.connected(inf)
        self._be_let_in()

    def version_for(self, api_key: ApiKey, *, highest: int = UNBOUNDED) -> int:
        """Return the newest common version, up to `highest`. Raises UnsupportedVersionError."""
        return self._core.version_for(api_key, highest=highest)

    def supports(self, api_key: ApiKey) -> bool:
        """Return whether the broker supports this API."""
        return self._core.supports(api_key)

    def ask(self, request: Any, *, highest: int = UNBOUNDED, wait_ms: int = 0) -> Any:
        """Send one request and wait for its response. Raises KafkaError."""
        self.send(request, highest=highest)
        return self.receive(wait_ms=wait_ms)

    def send(self, request: Any, *, highest: int = UNBOUNDED) -> None:
        """Write a request in the newest common version. Raises ConnectionLostError, UnsupportedVersionError."""
        if monotonic() >= self._renew_at:
            self._renew()
        api_key = api_key_of(request.__class__)
        version = self.version_for(api_key, highest=highest)
        body = [encode_request(request, version)]
        # Responses arrive in the order of the requests, so no correlation is needed.
        self._write(self._core.request(api_key, version, body, token=self, deadline=inf, decoded=True))

    def receive(self, *, wait_ms: int = 0) -> Any:
        """Return the response to the oldest request; `wait_ms` is the additional wait that the broker was allowed.

        Raises RequestTimeoutError or ConnectionLostError, after which the connection is closed.
        """
        while not self._answers:
            self._read(self._timeout_s + wait_ms / 1000)
        return self._answers.popleft()

    def close(self) -> None:
        """Close the connection; requests in flight are lost."""
        self._core.close()
        self._socket.close()

    def _be_let_in(self) -> None:
        while not self._core.is_renewed:
            self._write(self._core.data_to_send())
            self._read(self._timeout_s)
        session_ms = self._core.session_ms or inf
        self._renew_at = monotonic() + session_ms * _BEFORE_THE_END / 1000

    def _renew(self) -> None:
        """Authenticate again before the session expires on the broker (KIP-368)."""
        sasl = self._security.exchange(self._host)
        if sasl is not None:
            self._core.renew(sasl, inf)
            self._be_let_in()

    def _write(self, data: list[Buffer]) -> None:
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(b"".join(data))
        except OSError as error:
            self.close()
            raise ConnectionLostError(f"broker {self.address}: {error}") from error

    def _read(self, timeout_s: float) -> None:
        """Process received bytes, or wait for them. On any failure the connection is closed."""
        try:
            self._socket.settimeout(timeout_s)
            count = self._socket.recv_into(self._core.buffer())
            if count == 0:
                raise self._core.lost()
            self._answers += [answer for _, answer in self._core.received(count)]
        except TimeoutError:
            self.is_silent = True
            self.close()
            raise RequestTimeoutError(f"no response from broker {self.address} in time") from None
        except OSError as error:
            failure = self._core.lost(str(error))
            self.close()
            raise failure from error
        except BaseException:
            self.close()
            raise
