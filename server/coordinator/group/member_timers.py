"""Deadlines of members: their sessions, and the time in which they have to join, sync or revoke partitions.

A heartbeat moves a deadline without a new timer; a timer that fires before the deadline is set again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .group import Group

G = TypeVar("G", bound=Group)
"""The type of group; groups are compared by identity."""


@dataclass(slots=True)
class _Timer:
    deadline: float
    timer: asyncio.TimerHandle


class MemberTimers(Generic[G]):
    """The deadlines of members, and of pending member ids, by group.

    Owned by the manager of a group type and used on the loop's thread only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expired: Callable[[G, str], None]) -> None:
        self._loop = loop
        self._on_expired = on_expired
        self._sessions: dict[G, dict[str, _Timer]] = {}
        """The deadlines by member id, of sessions or of another kind; groups without deadlines are left out."""

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def restart(self, group: G, member_id: str, timeout_ms: int) -> None:
        """Set the deadline of a member to `timeout_ms` from now."""
        deadline = self._loop.time() + timeout_ms / 1000
        of_group = self._sessions.get(group)
        if of_group is None:
            of_group = self._sessions[group] = {}
        session = of_group.get(member_id)
        if session is None:
            of_group[member_id] = _Timer(deadline, self._loop.call_at(deadline, self._fire, group, member_id))
            return
        session.deadline = deadline
        if session.timer.when() > deadline:
            session.timer.cancel()
            session.timer = self._loop.call_at(deadline, self._fire, group, member_id)

    def begin(self, group: G, member_id: str, timeout_ms: int) -> None:
        """Set the deadline of a member, unless it has one."""
        if self._of(group, member_id) is None:
            self.restart(group, member_id, timeout_ms)

    def has(self, group: G, member_id: str) -> bool:
        """Return whether a member has a deadline."""
        return self._of(group, member_id) is not None

    def end(self, group: G, member_id: str) -> None:
        """Cancel the deadline of a member."""
        session = self._of(group, member_id)
        if session is not None:
            session.timer.cancel()
            self._remove(group, member_id)

    def end_all(self, group: G) -> None:
        """Cancel all deadlines of a group, also of former members."""
        for session in self._sessions.pop(group, {}).values():
            session.timer.cancel()

    def expire(self, group_id: str) -> None:
        """Let the deadlines of all members of a group expire now."""
        for group in [one for one in self._sessions if one.group_id == group_id]:
            for member_id in list(self._sessions.get(group, ())):
                session = self._of(group, member_id)
                if session is not None:
                    session.timer.cancel()
                    session.deadline = self._loop.time()
                    self._fire(group, member_id)

    def close(self) -> None:
        """Cancel all deadlines."""
        for group in list(self._sessions):
            self.end_all(group)

    def _of(self, group: G, member_id: str) -> _Timer | None:
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
