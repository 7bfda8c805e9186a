"""A small HTTP port on this machine: is the broker ready, and what else its parts want to show or be asked.

`GET /health`, and `/ready` just so, answers 200 once clients are served, 503 before that and from the moment a stop
begins: a readiness probe of a container platform or a script needs no Kafka client for it. One answer a connection; it
is not a web server.

A browser on this machine may be led here by any page it shows. So everything else is, unless the port is meant for
strangers, answered only under a
local name (a page's own name that leads here is none), and what changes something only with the header `X-Barnabas`,
which no page can send to a foreign address without asking first, and such questions are refused.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from ...protocol.room_logger import room_logger

logger = room_logger("health")

Status = Callable[[], tuple[bool, Mapping[str, object]]]
"""Ready or not, and what to tell besides."""

MAX_REQUEST_BYTES = 8192
REQUEST_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""After this a client that has not taken its answer is cut off."""
MOST_CONNECTIONS = 128
MOST_OF_A_HOST = 16
"""So many at once, and from one address: nobody takes all file handles, nor all that is left to others."""
GUARD_HEADER = "x-barnabas"
_LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Text(NamedTuple):
    """An answer that is no JSON."""

    status: str
    content_type: str
    body: bytes


class Answer(NamedTuple):
    """An HTTP status line without the version, and what is told as JSON."""

    status: str
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request. Bodies are not read."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case."""

    @classmethod
    def parse(cls, head: str) -> Request:
        """Read a head; malformed lines are left out."""
        line, *others = head.splitlines()
        method, _, rest = line.partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        pairs = [other.partition(":") for other in others if ":" in other]
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        return cls(method, path, dict(parse_qsl(query)), headers)

    @property
    def is_local(self) -> bool:
        """Whether the request names this machine by a local name."""
        return self.headers.get("host", "").rpartition(":")[0] in _LOCAL_NAMES


Route: TypeAlias = Callable[[Request], Awaitable["Answer | Text"]]


class HealthServer:
    """Loop-thread only. `status` says whether the broker is ready; `routes` what else is here, by method and path."""

    def __init__(
        self,
        host: str,
        port: int,
        status: Status,
        loop: asyncio.AbstractEventLoop,
        routes: Mapping[tuple[str, str], Route] | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        """With `is_open` whoever reaches the port is answered, by whatever name: then routes change nothing."""
        self._is_open = is_open
        self._host = host
        self._port = port
        self._status = status
        self._loop = loop
        self._routes = routes or {}
        self._server: asyncio.Server | None = None
        self._exchanges: set[asyncio.Task[None]] = set()
        self._hosts: Counter[str] = Counter()
        """Open connections, by address."""

    @property
    def port(self) -> int:
        """The port that was really bound."""
        assert self._server is not None, "not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where to ask for readiness."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/health"

    async def start(self) -> None:
        """Bind and serve. Raises OSError."""
        self._server = await self._loop.create_server(lambda: _Exchange(self), self._host or None, self._port)

    async def close(self) -> None:
        """Stop; whoever still waits for an answer gets none."""
        for task in self._exchanges:
            task.cancel()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._hosts.total()

    def admit(self, host: str) -> bool:
        """Whether one more from that address may come; if so it is to be told of by `forget`."""
        if self._hosts[host] >= MOST_OF_A_HOST or self.connections >= MOST_CONNECTIONS:
            return False
        self._hosts[host] += 1
        return True

    def forget(self, host: str) -> None:
        """A connection from there is gone."""
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    def begin(self, exchange: _Exchange, request: Request) -> None:
        """Have a request answered."""
        task = self._loop.create_task(self._exchange(exchange, request))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, exchange: _Exchange, request: Request) -> None:
        try:
            answer: Answer | Text = await self._answer(request)
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            answer = Answer("500 Internal Server Error", {"error": "see the broker's log"})
        exchange.end(_response(answer, without_body=request.method == "HEAD"))

    async def _answer(self, request: Request) -> Answer | Text:
        method = "GET" if request.method == "HEAD" else request.method
        if request.path in ("/health", "/ready"):
            if method != "GET":
                return Answer("405 Method Not Allowed", {"error": "GET is what works"})
            ready, facts = self._status()
            return Answer("200 OK" if ready else "503 Service Unavailable", {"ready": ready, **facts})
        route = self._routes.get((method, request.path))
        if route is None:
            paths = sorted({path for _, path in self._routes} | {"/health", "/ready"})
            return Answer("404 Not Found", {"error": f"here are {', '.join(paths)}"})
        if not (self._is_open or request.is_local):
            return Answer("403 Forbidden", {"error": "only for this machine, by a local name"})
        if method != "GET" and GUARD_HEADER not in request.headers:
            return Answer("403 Forbidden", {"error": "a request that changes something has the header X-Barnabas"})
        return await route(request)


class _Exchange(asyncio.Protocol):
    """One connection: a request's head in, a response out, closed."""

    def __init__(self, server: HealthServer) -> None:
        self._server = server
        self._head = b""
        self._is_asked = False
        self._host: str | None = None
        """Where it comes from, once it is let in."""
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # a stream's transport, whatever the loop
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._server.admit(host):
            self._abort()
            return
        self._host = host
        self._timeout = self._server.loop.call_later(REQUEST_SECONDS, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timing()
        self._transport = None
        if self._host is not None:
            self._server.forget(self._host)

    def data_received(self, data: bytes) -> None:
        if self._is_asked:
            return
        self._head += data
        if b"\r\n\r\n" not in self._head and b"\n\n" not in self._head:
            if len(self._head) > MAX_REQUEST_BYTES:
                self._close()
            return
        self._is_asked = True
        self._stop_timing()
        self._server.begin(self, Request.parse(self._head.decode("latin-1")))

    def end(self, response: bytes) -> None:
        """Answer, if anybody still listens."""
        if self._transport is not None:
            self._transport.write(response)
        self._close()

    def _stop_timing(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._timeout = self._server.loop.call_later(ANSWER_SECONDS, self._abort)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _response(answer: Answer | Text, *, without_body: bool) -> bytes:
    if isinstance(answer, Text):
        content_type, body = answer.content_type, answer.body
    else:
        content_type, body = "application/json", json.dumps(answer.facts).encode() + b"\n"
    fields = (f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close")
    head = "\r\n".join((f"HTTP/1.1 {answer.status}", *fields, "", "")).encode()
    return head if without_body else head + body
