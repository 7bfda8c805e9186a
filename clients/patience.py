"""How long a connection may keep a server waiting: for a request that does not come, for answers nobody reads.

There is room for so many connections. Whoever comes then takes the place of the one that has been silent longest, so
that nobody shuts others out by opening connections alone.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64
REQUEST_SECONDS = 20.0
"""A request is there as a whole after so long, the first one of a connection too."""
READ_SECONDS = 20.0
"""Whoever reads next to nothing of an answer for so long gets no more of it."""
LOOK_SECONDS = 1.0
_PROGRESS_BYTES = 64 << 10


class PatientProtocol(H11Protocol):
    """One connection. Its loop only."""

    _silent_since: float | None
    """Loop time since which a request is waited for; None while one is being answered."""
    _unsent: int
    _stuck_since: float
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make room, or close at once where everybody is being answered."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._silent_since = self._stuck_since = self.loop.time()
        self._unsent = 0
        self._watch = self.loop.call_later(LOOK_SECONDS, self._look)
        if len(self.connections) > MOST_CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, PatientProtocol) and one is not self]
            silent = [(one._silent_since, id(one), one) for one in others if one._silent_since is not None]
            (min(silent)[2] if silent else self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Watch no more."""
        super().connection_lost(exc)
        if self._watch is not None:
            self._watch.cancel()

    def data_received(self, data: bytes) -> None:
        """A request has come, or a part of one."""
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """The next request is waited for."""
        super().on_response_complete()
        self._note()

    def _note(self) -> None:
        if self._is_being_answered():
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self.loop.time()

    def _is_being_answered(self) -> bool:
        """Whether all of a request is there, and not yet all of its answer."""
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
