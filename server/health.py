"""`GET /health` over HTTP: 200 once clients are served, 503 before that and from the moment a stop begins.

A readiness probe of a container platform or a script needs no Kafka client for it. One short answer a connection; it is
not a web server, and nothing else has an address here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

Status = Callable[[], tuple[bool, Mapping[str, object]]]
"""Ready or not, and what to tell besides."""

MAX_REQUEST_BYTES = 8192
REQUEST_SECONDS = 5.0


class HealthServer:
    """Loop-thread only. `status` says what to answer."""

    def __init__(
        self,
        host: str,
        port: int,
        status: Status,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._host = host
        self._port = port
        self._status = status
        self._loop = loop
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where to ask, with the port that was really bound."""
        assert self._server is not None, "not started"
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}/health"

    async def start(self) -> None:
        """Bind and serve. Raises OSError."""
        self._server = await self._loop.create_server(lambda: _Exchange(self), self._host, self._port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def answer(self, request_line: str) -> bytes:
        """The whole HTTP response to a request."""
        method, _, rest = request_line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path != "/health":
            return _response("404 Not Found", {"error": "only /health is here"})
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", {"error": "GET is what works"})
        ready, facts = self._status()
        return _response("200 OK" if ready else "503 Service Unavailable", {"ready": ready, **facts}, method == "HEAD")


class _Exchange(asyncio.Protocol):
    """One connection: a request's head in, a response out, closed."""

    def __init__(self, server: HealthServer) -> None:
        self._server = server
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # a stream's transport, whatever the loop
        self._timeout = self._server.loop.call_later(REQUEST_SECONDS, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" not in self._head and b"\n\n" not in self._head:
            if len(self._head) > MAX_REQUEST_BYTES:
                self._close()
            return
        if self._transport is not None:
            line = self._head.partition(b"\n")[0].decode("latin-1").strip()
            self._transport.write(self._server.answer(line))
        self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _response(status: str, facts: Mapping[str, object], without_body: bool = False) -> bytes:
    body = json.dumps(facts).encode() + b"\n"
    fields = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
    head = "\r\n".join((f"HTTP/1.1 {status}", *fields, "", "")).encode()
    return head if without_body else head + body
