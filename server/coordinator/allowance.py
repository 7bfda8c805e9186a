"""How many groups, or transactional ids, each client may have made.

Nobody fills the broker's memory, and nobody locks others out of it.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import NamedTuple

MOST_OF_A_CLIENT, MOST_OF_A_HOST = 20_000, 200_000
"""There at the same time. A group with one offset takes about two kilobytes, a transactional id one."""
NAME_CHARACTERS = 500
"""For so many of a name, or of its client's id, it counts as one more: of 32 KB each of them takes that and more."""


class Maker(NamedTuple):
    """Who made something."""

    host: str
    client_id: str


NOBODY = Maker("", "")


class Allowance:
    """Counts the names that are there by who made them since this broker began to coordinate them.

    There is no limit for all clients together: one of them would reach it for everybody. What was loaded from
    the log counts for nobody.
    """

    def __init__(self) -> None:
        self._makers: dict[str, Maker] = {}
        self._names: dict[Maker, dict[str, None]] = {}
        self._of_client: Counter[Maker] = Counter()
        self._of_host: Counter[str] = Counter()

    def has_room(self, maker: Maker) -> bool:
        """Whether this client may make one more."""
        return self._of_client[maker] < MOST_OF_A_CLIENT and self._of_host[maker.host] < MOST_OF_A_HOST

    def next_of(self, maker: Maker, count: int) -> list[str]:
        """So many names of this client, the next ones at each call."""
        made = self._names.get(maker, {})
        named = list(islice(made, count))
        for name in named:
            made[name] = made.pop(name)
        return named

    def made(self, name: str, maker: Maker) -> None:
        """The client has made it."""
        self.gone(name)
        self._makers[name] = maker
        self._names.setdefault(maker, {})[name] = None
        count = _counts_as(name, maker)
        self._of_client[maker] += count
        self._of_host[maker.host] += count

    def gone(self, name: str) -> None:
        """It is not there any more."""
        maker = self._makers.pop(name, None)
        if maker is None:
            return
        del self._names[maker][name]
        if not self._names[maker]:
            del self._names[maker]
        count = _counts_as(name, maker)
        self._of_client[maker] -= count
        if not self._of_client[maker]:
            del self._of_client[maker]
        self._of_host[maker.host] -= count
        if not self._of_host[maker.host]:
            del self._of_host[maker.host]


def _counts_as(name: str, maker: Maker) -> int:
    return 1 + len(name) // NAME_CHARACTERS + len(maker.client_id) // NAME_CHARACTERS
