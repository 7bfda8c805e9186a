"""The slowest requests of the last minutes, with their clients and the times of their phases.

`KEPT` requests per API and minute are kept, so that no API and no busy minute hides slow requests of others. A request
costs one comparison with the fastest of the kept requests of its API; only a slower one costs more.
"""

from __future__ import annotations

from collections import deque
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.apis import ApiKey
from .call_watch import CallTimes

if TYPE_CHECKING:
    from ..apis.request_context import RequestContext

KEPT = 8
"""Requests per API and minute."""
MINUTES = 5
MIN_SECONDS = 0.005
"""A faster request is never slow."""
TOLD = 100
MINUTE = 60.0
_NAME_CHARS = 100
WAITING = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""APIs whose requests wait for other members, which does not count as slowness of the broker."""


class SlowRequest(NamedTuple):
    """Times are seconds; `at` is when it was answered, by the stopwatch."""

    slowness: float
    """The total time without the wait that the client requested."""
    at: float
    version: int
    client_id: str
    principal: str
    host: str
    correlation_id: int
    local: float
    remote: float
    send: float


class SlowOfApi:
    """The slow requests of one API, used on the loop's thread only."""

    __slots__ = ("_earlier", "_now", "_waits", "watched")

    def __init__(self, key: ApiKey) -> None:
        self._waits = key in WAITING
        self._now: list[SlowRequest] = []
        self._earlier: deque[list[SlowRequest]] = deque(maxlen=MINUTES - 1)
        self.watched = CallTimes(MIN_SECONDS)
        """Requests that took no longer than its floor are not kept."""

    def add(self, context: RequestContext, waited: float, at: float, phases: tuple[float, float, float]) -> None:
        """Add a request that took longer than the floor; `waited` are the seconds that the client requested to wait."""
        local, remote, send = phases
        slowness = local + send + max(0.0, 0.0 if self._waits else remote - waited)
        if slowness <= self.watched.floor:
            return
        found = SlowRequest(
            slowness,
            at,
            context.api_version,
            (context.client_id or "")[:_NAME_CHARS],
            context.session.principal.name[:_NAME_CHARS],
            context.client_host,
            context.correlation_id,
            *phases,
        )
        if len(self._now) < KEPT:
            heappush(self._now, found)
        else:
            heapreplace(self._now, found)
        if len(self._now) == KEPT:
            self.watched.floor = self._now[0].slowness

    def next_minute(self) -> None:
        """Begin a minute with a new floor, and drop the oldest minute."""
        self._earlier.append(self._now)
        self._now, self.watched.floor = [], MIN_SECONDS

    @property
    def kept(self) -> list[SlowRequest]:
        """Return the requests in any order."""
        return [one for minute in (*self._earlier, self._now) for one in minute]


class SlowRequests:
    """The slow requests of all APIs, used on the loop's thread only."""

    def __init__(self) -> None:
        self._apis: dict[str, SlowOfApi] = {}
        self._since = 0.0

    def of(self, name: str, key: ApiKey) -> SlowOfApi:
        """Return the slow requests of an API."""
        return self._apis.setdefault(name, SlowOfApi(key))

    def look_at_clock(self, now: float) -> None:
        """Begin another minute if the current minute is over."""
        if now - self._since >= MINUTE:
            self._since = now
            for api in self._apis.values():
                api.next_minute()

    def slowest(self) -> list[tuple[str, SlowRequest]]:
        """Return the slowest requests with the names of their APIs, slowest first."""
        kept = [(name, one) for name, api in self._apis.items() for one in api.kept]
        return sorted(kept, key=lambda found: -found[1].slowness)[:TOLD]
