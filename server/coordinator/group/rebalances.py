"""The waits of a rebalance: for members to join, for newcomers to gather, for everybody to fetch its assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...replication.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from .group import Group
    from .membership import Membership


class DelayedJoin(DelayedOperation):
    """Until all known members have joined, or the slowest has had its time."""

    __slots__ = ("_group", "_membership")

    def __init__(self, membership: Membership, group: Group) -> None:
        super().__init__()
        self._membership = membership
        self._group = group

    def try_complete(self) -> bool:
        return self._group.has_all_joined and self.force_complete()

    def on_complete(self) -> None:
        self._membership.end_wait(self._group)


class InitialDelayedJoin(DelayedJoin):
    """The first members of an empty group wait for more to come, and on after each that does, up to a limit."""

    __slots__ = ("_latest",)

    def __init__(self, membership: Membership, group: Group, latest: float) -> None:
        super().__init__(membership, group)
        self._latest = latest
        """Loop time at which nobody more is waited for."""

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        if not self._membership.prolong_initial_wait(self._group, self._latest):
            self._membership.end_wait(self._group)


class DelayedSync(DelayedOperation):
    """Until every member of a generation has asked for its assignment; who has not by the deadline is removed."""

    __slots__ = ("_generation", "_group", "_membership")

    def __init__(self, membership: Membership, group: Group) -> None:
        super().__init__()
        self._membership = membership
        self._group = group
        self._generation = group.generation

    def try_complete(self) -> bool:
        is_over = self._group.generation != self._generation or not self._group.pending_syncs
        return is_over and self.force_complete()

    def on_expiration(self) -> None:
        self._membership.remove_unsynced(self._group, self._generation)

    def on_complete(self) -> None:
        """Nobody waits for this."""
