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
        self._sessions: dict[G, dict[str, _Session]] = {}
        """By member; groups of which nobody is waited for are left out."""

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def restart(self, group: G, member_id: str, timeout_ms: int) -> None:
        """The member was heard of: it has `timeout_ms` from now on."""
        deadline = self._loop.time() + timeout_ms / 1000
        session = self._of(group, member_id)
        if session is None:
            timer = self._loop.call_at(deadline, self._fire, group, member_id)
            self._sessions.setdefault(group, {})[member_id] = _Session(deadline, timer)
            return
        session.deadline = deadline
        if session.timer.when() > deadline:
            session.timer.cancel()
            session.timer = self._loop.call_at(deadline, self._fire, group, member_id)

    def begin(self, group: G, member_id: str, timeout_ms: int) -> None:
        """Something is expected of the member within `timeout_ms`; if it is already, that deadline stays."""
        if self._of(group, member_id) is None:
            self.restart(group, member_id, timeout_ms)

    def end(self, group: G, member_id: str) -> None:
        """Nothing is expected of the member any more."""
        session = self._of(group, member_id)
        if session is not None:
            session.timer.cancel()
            self._remove(group, member_id)

    def end_all(self, group: G) -> None:
        """Nothing is expected of anybody in the group any more, also of who is no member now."""
        for session in self._sessions.pop(group, {}).values():
            session.timer.cancel()

    def expire(self, group_id: str) -> None:
        """The time of all members of a group is over."""
        for group in [one for one in self._sessions if one.group_id == group_id]:
            for member_id in list(self._sessions.get(group, ())):
                session = self._of(group, member_id)
                if session is not None:
                    session.timer.cancel()
                    session.deadline = self._loop.time()
                    self._fire(group, member_id)

    def close(self) -> None:
        """Expect nothing of anybody."""
        for group in list(self._sessions):
            self.end_all(group)

    def _of(self, group: G, member_id: str) -> _Session | None:
        of_group = self._sessions.get(group)
        return None if of_group is None else of_group.get(member_id)

    def _remove(self, group: G, member_id: str) -> None:
        of_group = self._sessions[group]
        del of_group[member_id]
        if not of_group:
            del self._sessions[group]

    def _fire(self, group: G, member_id: str) -> None:
        session = self._of(group, member_id)
        if session is None:
            return
        if session.deadline > self._loop.time():
            session.timer = self._loop.call_at(session.deadline, self._fire, group, member_id)
            return
        self._remove(group, member_id)
        self._on_expired(group, member_id)
