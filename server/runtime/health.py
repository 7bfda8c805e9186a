"""A small HTTP port on this machine: the readiness of the broker, and the routes of its components.

`GET /health` and `GET /ready` answer 200 once clients are served, 503 before that and from the moment a stop begins: a
readiness probe of a container platform or a script needs no Kafka client. Each connection serves one response; it is
not a web server.

Any page that a browser shows can send requests here, also under a domain name of its own that resolves to this address
(DNS rebinding). So every other path is answered only where `Host` is a name of this server, and a request that changes
something needs the header `X-Barnabas` as well, which a page cannot send to a foreign address without a preflight
request, and preflight requests are rejected.

h11 parses the heads and bounds the size of an incomplete one.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import h11

from ...common.room_logger import room_logger

logger = room_logger("health")

Status = Callable[[], tuple[bool, Mapping[str, object]]]
"""Whether the broker is ready, and further facts."""

MAX_REQUEST_BYTES = 8192
REQUEST_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""The time after which a client that has not read its response is disconnected."""
MAX_CONNECTIONS = 128
MAX_CONNECTIONS_PER_HOST = 64
"""Connections at the same time, and of one address. One more closes the oldest connection that is not being answered:
clients that send half a request, or do not take their response, do not keep a probe out."""
MAX_REQUESTS_PER_HOST = 16
"""Requests of one address that are being answered at the same time, other than probes, which are always answered."""
BACKLOG = MAX_CONNECTIONS_PER_HOST // 2
"""Connections accepted in one turn of the loop: fewer than an address may have, so that a probe is read before newer
connections can close it."""
PROBES = ("/health", "/ready")
GUARD_HEADER = "x-barnabas"
_LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
_REFUSALS = {431: "431 Request Header Fields Too Large"}


class TextResponse(NamedTuple):
    """A response that is plain text instead of JSON."""

    status: str
    content_type: str
    body: bytes


class JsonResponse(NamedTuple):
    """An HTTP status line without the version, and the body as JSON."""

    status: str
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The head of a request. Bodies are not read."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers by name in lower case."""

    @classmethod
    def of(cls, head: h11.Request) -> HttpRequest:
        """Return the request that a parsed head describes."""
        path, _, query = head.target.decode("latin-1").partition("?")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return cls(head.method.decode("latin-1"), path, dict(parse_qsl(query)), headers)

    @property
    def is_local(self) -> bool:
        """Whether the request names this machine by a local name."""
        return self.headers.get("host", "").rpartition(":")[0] in _LOCAL_NAMES

    def is_for(self, names: Collection[str]) -> bool:
        """Whether `Host` is an address, a local name or one of `names`, or there is none.

        A page under a domain name that resolves to this address cannot make a browser send any of these.
        """
        host = self.headers.get("host", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return not name or name.lower() == "localhost" or name.lower() in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


Route: TypeAlias = Callable[[HttpRequest], Awaitable["JsonResponse | TextResponse"]]


class HealthServer:
    """Owned by the loop thread. `status` returns the readiness; `routes` are the other handlers by method and path."""

    def __init__(
        self,
        host: str,
        port: int,
        status: Status,
        loop: asyncio.AbstractEventLoop,
        routes: Mapping[tuple[str, str], Route] | None = None,
        *,
        names: Collection[str] | None = None,
    ) -> None:
        """`names` are those under which other machines reach the port; routes then change nothing. None: local only."""
        self._names = None if names is None else frozenset(name.lower() for name in names)
        self._host = host
        self._port = port
        self._status = status
        self._loop = loop
        self._routes = routes or {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._exchanges: dict[_Exchange, str] = {}
        """Open connections and their addresses, the oldest first."""
        self._hosts: Counter[str] = Counter()
        """Open connections, by address."""
        self._busy: Counter[str] = Counter()
        """Requests that are being answered, by address; without probes."""

    @property
    def port(self) -> int:
        """The port that was really bound."""
        assert self._server is not None, "not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The URL of the readiness probe."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/health"

    async def start(self) -> None:
        """Bind and serve. Raises OSError."""
        self._server = await self._loop.create_server(
            lambda: _Exchange(self), self._host or None, self._port, backlog=BACKLOG
        )

    async def close(self) -> None:
        """Stop; waiting requests get no response."""
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._hosts.total()

    def admit(self, exchange: _Exchange, host: str) -> bool:
        """Count a new connection in, in place of an older one where there are too many; False where none can go."""
        if self._hosts[host] >= MAX_CONNECTIONS_PER_HOST:
            victims = (old for old, address in self._exchanges.items() if address == host and not old.is_busy)
        elif self.connections >= MAX_CONNECTIONS:
            share = self.connections / len(self._hosts)
            victims = (
                old for old, address in self._exchanges.items() if self._hosts[address] >= share and not old.is_busy
            )
        else:
            victims = None
        if victims is not None:
            victim = next(victims, None)
            if victim is None:
                return False
            victim.abort()
        self._exchanges[exchange] = host
        self._hosts[host] += 1
        return True

    def forget(self, exchange: _Exchange) -> None:
        """Forget a closed connection."""
        host = self._exchanges.pop(exchange, None)
        if host is not None:
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]

    def begin(self, exchange: _Exchange, request: HttpRequest) -> None:
        """Have a request answered."""
        task = self._loop.create_task(self._exchange(exchange, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, exchange: _Exchange, request: HttpRequest) -> None:
        host = self._exchanges.get(exchange, "")
        is_probe = request.path in PROBES
        answer: JsonResponse | TextResponse
        if not is_probe and self._busy[host] >= MAX_REQUESTS_PER_HOST:
            answer = JsonResponse(
                "503 Service Unavailable", {"error": "too many requests of this address at the same time"}
            )
            exchange.end(_response(answer, without_body=request.method == "HEAD"))
            return
        self._busy[host] += not is_probe
        try:
            answer = await self._answer(request)
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            answer = JsonResponse("500 Internal Server Error", {"error": "see the broker's log"})
        finally:
            self._busy[host] -= not is_probe
            if not self._busy[host]:
                del self._busy[host]
        exchange.end(_response(answer, without_body=request.method == "HEAD"))

    async def _answer(self, request: HttpRequest) -> JsonResponse | TextResponse:
        method = "GET" if request.method == "HEAD" else request.method
        if request.path in PROBES:
            if method != "GET":
                return JsonResponse("405 Method Not Allowed", {"error": "only GET is supported"})
            ready, facts = self._status()
            return JsonResponse("200 OK" if ready else "503 Service Unavailable", {"ready": ready, **facts})
        route = self._routes.get((method, request.path))
        if route is None:
            paths = sorted({path for _, path in self._routes} | {*PROBES})
            return JsonResponse("404 Not Found", {"error": f"here are {', '.join(paths)}"})
        if self._names is None and not request.is_local:
            return JsonResponse("403 Forbidden", {"error": "only for this machine, by a local name"})
        if self._names is not None and not request.is_for(self._names):
            return JsonResponse("421 Misdirected Request", {"error": "unknown Host: see metrics.allowed.hosts"})
        if method != "GET" and GUARD_HEADER not in request.headers:
            return JsonResponse(
                "403 Forbidden", {"error": "a request that changes something has the header X-Barnabas"}
            )
        return await route(request)


class _Exchange(asyncio.Protocol):
    """One connection: a request's head in, a response out, closed."""

    def __init__(self, server: HealthServer) -> None:
        self._server = server
        self._http: h11.Connection | None = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST_BYTES)
        """Parses the head; None once nothing more is to be read."""
        self._room = MAX_REQUEST_BYTES
        self._is_asked = False
        self._is_answered = False
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # a stream's transport with any loop
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._server.admit(self, host):
            self.abort()
            return
        self._time(REQUEST_SECONDS, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timing()
        self._http = self._transport = None
        self._server.forget(self)

    @property
    def is_busy(self) -> bool:
        """Whether a request has arrived and its response is not written yet."""
        return self._is_asked and not self._is_answered

    def data_received(self, data: bytes) -> None:
        if self._http is None:
            return
        # No more than the bound is given to the parser, which would otherwise parse a complete head of any length.
        piece = data[: self._room]
        self._room -= len(piece)
        try:
            self._http.receive_data(piece)
            event = self._http.next_event() if piece else h11.NEED_DATA
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))
            return
        if isinstance(event, h11.Request):
            self._http = None
            self._is_asked = True
            self._stop_timing()
            self._server.begin(self, HttpRequest.of(event))
        elif len(piece) < len(data):
            self._refuse(431, f"more than {MAX_REQUEST_BYTES} bytes")

    def end(self, response: bytes) -> None:
        """Answer, if anybody still listens."""
        self._is_answered = True
        if self._transport is not None:
            self._transport.write(response)
        self._close()

    def _refuse(self, status: int, reason: str) -> None:
        answer = JsonResponse(_REFUSALS.get(status, "400 Bad Request"), {"error": reason})
        self.end(_response(answer, without_body=False))

    def _time(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after `seconds`; replace the previous timer, which would keep this object alive."""
        self._stop_timing()
        self._timeout = self._server.loop.call_later(seconds, then)

    def _stop_timing(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _close(self) -> None:
        self._http = None
        if self._transport is not None:
            self._transport.close()
            self._time(ANSWER_SECONDS, self.abort)

    def abort(self) -> None:
        """Close immediately, discarding unsent bytes, and free the connection's slot."""
        self._server.forget(self)
        self._http = None
        if self._transport is not None:
            self._transport.abort()


def _response(answer: JsonResponse | TextResponse, *, without_body: bool) -> bytes:
    if isinstance(answer, TextResponse):
        content_type, body = answer.content_type, answer.body
    else:
        content_type, body = "application/json", json.dumps(answer.facts).encode() + b"\n"
    fields = (f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close")
    head = "\r\n".join((f"HTTP/1.1 {answer.status}", *fields, "", "")).encode()
    return head if without_body else head + body
