"""How many groups each client may have made: nobody fills the broker's memory, and nobody locks others out of it."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

GROUPS_OF_A_CLIENT, GROUPS_OF_A_HOST = 20_000, 200_000
"""There at the same time. A group with one offset takes about two kilobytes."""


class Maker(NamedTuple):
    """Who made a group."""

    host: str
    client_id: str


NOBODY = Maker("", "")


class Allowance:
    """Counts the groups that are there by who made them since this broker began to coordinate them.

    There is no limit for all clients together: one of them would reach it for everybody. Groups that were loaded from
    the log count for nobody.
    """

    def __init__(self) -> None:
        self._makers: dict[str, Maker] = {}
        self._groups: dict[Maker, dict[str, None]] = {}
        self._of_host: dict[str, int] = {}

    def has_room(self, maker: Maker) -> bool:
        """Whether this client may make one more."""
        made = self._groups.get(maker, ())
        return len(made) < GROUPS_OF_A_CLIENT and self._of_host.get(maker.host, 0) < GROUPS_OF_A_HOST

    def next_of(self, maker: Maker, count: int) -> list[str]:
        """So many groups of this client; others each time, until all have been named."""
        made = self._groups.get(maker, {})
        named = list(islice(made, count))
        for group_id in named:
            made[group_id] = made.pop(group_id)
        return named

    def made(self, group_id: str, maker: Maker) -> None:
        """The client has made the group."""
        self.gone(group_id)
        self._makers[group_id] = maker
        self._groups.setdefault(maker, {})[group_id] = None
        self._of_host[maker.host] = self._of_host.get(maker.host, 0) + 1

    def gone(self, group_id: str) -> None:
        """The group is not there any more."""
        maker = self._makers.pop(group_id, None)
        if maker is None:
            return
        del self._groups[maker][group_id]
        if not self._groups[maker]:
            del self._groups[maker]
        self._of_host[maker.host] -= 1
        if not self._of_host[maker.host]:
            del self._of_host[maker.host]
