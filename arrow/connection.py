"""One blocking connection to one broker, for threads and processes without an event loop.

A socket around `protocol.client_connection`. Requests may be pipelined: `send` any number, then `receive` their
responses in the same order.
"""

from __future__ import annotations

import socket
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from struct import pack
from typing import Any

from .. import __version__
from ..clients.errors import BrokerUnreachableError
from ..clients.security import Security
from ..protocol.apis import ApiKey, api_key_of
from ..protocol.client_connection import ClientConnection, Introduction
from ..protocol.codec import encode_request
from ..protocol.errors import ConnectionLostError, RequestTimeoutError
from ..protocol.receive_buffer import FrameMemory
from ..protocol.schema import UNBOUNDED, Buffer
from .host import call_after_fork, monotonic

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
        self,
        address: tuple[str, int],
        security: Security,
        timeout_s: float,
        *,
        client_id: str = CLIENT_ID,
        memory: FrameMemory | None = None,
        on_connected: Callable[[BlockingConnection], object] = lambda _: None,
    ) -> None:
        """Connect and authenticate. `on_connected` is called in between, so that another thread can interrupt the
        authentication. Raises KafkaError.
        """
        self.address = f"{address[0]}:{address[1]}"
        self._timeout_s = timeout_s
        self._security, self._host = security, address[0]
        self._is_tls = security.tls is not None
        self._timeouts: dict[int, float] = {}
        """The timeouts in seconds that the socket has, by socket option."""
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
            memory=memory,
        )
        try:
            self._socket = socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=address[0])
            else:
                self._socket.settimeout(None)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise BrokerUnreachableError(f"cannot reach broker at {self.address}: {reason}") from error
        _open_connections.add(self)
        on_connected(self)
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

    def interrupt(self) -> None:
        """End the connection from any thread: the thread that waits for a response gets a ConnectionLostError."""
        with suppress(OSError):
            # Not the method of a TLS socket, which changes the state that the other thread uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close_socket(self) -> None:
        """Close this process's descriptor; a process with a copy of it can continue to use the connection."""
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

    def _limit(self, option: int, timeout_s: float) -> None:
        """Set the timeout of each read (SO_RCVTIMEO) or write (SO_SNDTIMEO) of the socket."""
        if self._is_tls:
            self._socket.settimeout(timeout_s)
        elif self._timeouts.get(option) != timeout_s:
            # The kernel's timeout, with which a read can wait for many bytes; with a timeout of Python it cannot.
            self._socket.setsockopt(socket.SOL_SOCKET, option, pack("ll", *divmod(round(timeout_s * 1e6), 1_000_000)))
            self._timeouts[option] = timeout_s

    def _write(self, data: list[Buffer]) -> None:
        try:
            self._limit(socket.SO_SNDTIMEO, self._timeout_s)
            self._socket.sendall(b"".join(data))
        except OSError as error:
            self.close()
            raise ConnectionLostError(f"broker {self.address}: {error}") from error

    def _read(self, timeout_s: float) -> None:
        """Process received bytes, or wait for them. On any failure the connection is closed."""
        try:
            self._limit(socket.SO_RCVTIMEO, timeout_s)
            # One call for the rest of a response, during which other threads run. TLS returns one record at a time.
            flags = socket.MSG_WAITALL if self._core.is_within_response and not self._is_tls else 0
            count = self._socket.recv_into(self._core.buffer(), 0, flags)
            if count == 0:
                raise self._core.lost()
            self._answers += [answer for _, answer in self._core.received(count)]
        except (TimeoutError, BlockingIOError):
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


_open_connections: weakref.WeakSet[BlockingConnection] = weakref.WeakSet()


def _close_copies() -> None:
    """Close the sockets that a forked child has from its parent, whose threads the child does not have.

    Otherwise a broker would see the end of the parent's connections only when the child ends.
    """
    for connection in list(_open_connections):
        connection.close_socket()


call_after_fork(_close_copies)
