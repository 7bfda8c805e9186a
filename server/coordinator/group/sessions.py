"""Who has to be heard of until when. A heartbeat only moves a deadline; a timer that fires too early is set anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    """Anything with a group's name."""

    @property
    def group_id(self) -> str:
        """What the group is called."""


G = TypeVar("G", bound=Named)
"""The kind of group: compared by identity."""


@dataclass(slots=True)
class _Session:
    deadline: float
    timer: asyncio.TimerHandle


class Sessions(Generic[G]):
    """Deadlines of members, and of ids that were given out but not used yet. Loop-thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expired: Callable[[G, str], None]) -> None:
        self._loop = loop
        self._on_expired = on_expired
        self._sessions: dict[tuple[G, str], _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def restart(self, group: G, member_id: str, timeout_ms: int) -> None:
        """The member was heard of: it has `timeout_ms` from now on."""
        key = (group, member_id)
        deadline = self._loop.time() + timeout_ms / 1000
        session = self._sessions.get(key)
        if session is None:
            timer = self._loop.call_at(deadline, self._fire, key)
            self._sessions[key] = _Session(deadline, timer)
            return
        session.deadline = deadline
        if session.timer.when() > deadline:
            session.timer.cancel()
            session.timer = self._loop.call_at(deadline, self._fire, key)

    def begin(self, group: G, member_id: str, timeout_ms: int) -> None:
        """Something is expected of the member within `timeout_ms`; if it is already, that deadline stays."""
        if (group, member_id) not in self._sessions:
            self.restart(group, member_id, timeout_ms)

    def end(self, group: G, member_id: str) -> None:
        """Nothing is expected of the member any more."""
        session = self._sessions.pop((group, member_id), None)
        if session is not None:
            session.timer.cancel()

    def expire(self, group_id: str) -> None:
        """The time of all members of a group is over."""
        for group, member_id in [key for key in self._sessions if key[0].group_id == group_id]:
            session = self._sessions.get((group, member_id))
            if session is not None:
                session.timer.cancel()
                session.deadline = self._loop.time()
                self._fire((group, member_id))

    def close(self) -> None:
        """Expect nothing of anybody."""
        for session in self._sessions.values():
            session.timer.cancel()
        self._sessions.clear()

    def _fire(self, key: tuple[G, str]) -> None:
        session = self._sessions.get(key)
        if session is None:
            return
        if session.deadline > self._loop.time():
            session.timer = self._loop.call_at(session.deadline, self._fire, key)
            return
        del self._sessions[key]
        self._on_expired(*key)
