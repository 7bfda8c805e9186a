"""The limit on the groups, or transactional ids, that each client may create.

It bounds the broker's memory. There is no limit for all clients together: one client would reach it for all others.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import NamedTuple

NAMES_PER_CLIENT, NAMES_PER_HOST = 20_000, 200_000
"""Names that exist at the same time. A group with one offset takes about two kilobytes, a transactional id one."""
CHARACTERS_PER_NAME = 500
"""A name, or the client id of its creator, counts as one more name for each such number of characters."""


class ClientIdentity(NamedTuple):
    """The client that created a name."""

    host: str
    client_id: str


UNKNOWN_CLIENT = ClientIdentity("", "")


class CreationLimiter:
    """The number of existing names by the client that created them since this broker became their coordinator.

    Owned by a coordinator and used on the loop's thread only. Names that were loaded from the log count for no client.
    """

    def __init__(self, names_per_host: int | None = None) -> None:
        """Replace `NAMES_PER_HOST` by `names_per_host` for names that cost more memory than others."""
        self._names_per_host = names_per_host
        self._clients: dict[str, ClientIdentity] = {}
        self._names: dict[ClientIdentity, dict[str, None]] = {}
        self._client_counts: Counter[ClientIdentity] = Counter()
        self._host_counts: Counter[str] = Counter()

    def can_create(self, client: ClientIdentity, count: int = 1) -> bool:
        """Return whether a client may create `count` more names."""
        names_per_host = NAMES_PER_HOST if self._names_per_host is None else self._names_per_host
        return (
            self._client_counts[client] + count <= NAMES_PER_CLIENT
            and self._host_counts[client.host] + count <= names_per_host
        )

    def take_names(self, client: ClientIdentity, count: int) -> list[str]:
        """Return up to `count` names of a client and move them to the end, so that the next call returns others."""
        names = self._names.get(client, {})
        taken = list(islice(names, count))
        for name in taken:
            names[name] = names.pop(name)
        return taken

    def record_creation(self, name: str, client: ClientIdentity) -> None:
        """Count a name for the client that created it."""
        self.record_deletion(name)
        self._clients[name] = client
        self._names.setdefault(client, {})[name] = None
        count = _weight(name, client)
        self._client_counts[client] += count
        self._host_counts[client.host] += count

    def record_deletion(self, name: str) -> None:
        """Stop counting a name."""
        client = self._clients.pop(name, None)
        if client is None:
            return
        del self._names[client][name]
        if not self._names[client]:
            del self._names[client]
        count = _weight(name, client)
        self._client_counts[client] -= count
        if not self._client_counts[client]:
            del self._client_counts[client]
        self._host_counts[client.host] -= count
        if not self._host_counts[client.host]:
            del self._host_counts[client.host]


def _weight(name: str, client: ClientIdentity) -> int:
    return 1 + len(name) // CHARACTERS_PER_NAME + len(client.client_id) // CHARACTERS_PER_NAME
