"""Timeouts of HTTP connections: for a request that does not arrive, and for a response that is not read.

At most `MAX_CONNECTIONS` are open. A further connection replaces the connection that has been silent longest, so that
idle connections cannot shut out other clients.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64
REQUEST_SECONDS = 20.0
"""The time for a complete request to arrive, counted from the response before it or the start of the connection."""
READ_SECONDS = 20.0
"""A response that the client has hardly read for this long is abandoned."""
LOOK_SECONDS = 1.0
_PROGRESS_BYTES = 64 << 10


class TimeoutProtocol(H11Protocol):
    """An HTTP connection that ends itself after a timeout, on the loop of its server."""

    _silent_since: float | None
    """Loop time since which the connection waits for a request; None during a request."""
    _unsent: int
    _stuck_since: float
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make room, or close immediately if every other connection has a request."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._silent_since = self._stuck_since = self.loop.time()
        self._unsent = 0
        self._watch = self.loop.call_later(LOOK_SECONDS, self._look)
        if len(self.connections) > MAX_CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, TimeoutProtocol) and one is not self]
            silent = [(one._silent_since, id(one), one) for one in others if one._silent_since is not None]
            (min(silent)[2] if silent else self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        super().connection_lost(exc)
        if self._watch is not None:
            self._watch.cancel()

    def data_received(self, data: bytes) -> None:
        """Process a request or a part of it."""
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """Start to wait for the next request."""
        super().on_response_complete()
        self._note()

    def _note(self) -> None:
        if self._is_being_answered():
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self.loop.time()

    def _is_being_answered(self) -> bool:
        """Return whether a request is complete and its response is not."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _look(self) -> None:
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        if not unsent or self._unsent - unsent > min(_PROGRESS_BYTES, self._unsent // 2) or unsent > self._unsent:
            self._unsent, self._stuck_since = unsent, now
        is_silent = self._silent_since is not None and now - self._silent_since > REQUEST_SECONDS
        if is_silent or (unsent and now - self._stuck_since > READ_SECONDS):
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(LOOK_SECONDS, self._look)
