"""The limits of one kind of quota for users and client ids, and which of them counts for a client."""

from __future__ import annotations

from typing import Any

from .entities import CLIENT_ID, USER, Entity

Owner = tuple[str | None, str | None]
"""Who shares a rate: a user's client, a user with all clients (client None), a client id of all users (user None)."""


class ClientLimits:
    """The limits of one quota key (Kafka's DefaultQuotaCallback)."""

    __slots__ = ("_clients", "_of_both", "_users")

    def __init__(self) -> None:
        self._of_both: dict[tuple[str | None, str | None], float] = {}
        self._users: dict[str | None, float] = {}
        self._clients: dict[str | None, float] = {}

    def __bool__(self) -> bool:
        return bool(self._of_both or self._users or self._clients)

    def set(self, entity: Entity, limit: float | None) -> None:
        """Give the entity this limit from now on; None removes it."""
        limits: dict[Any, float]
        key: Any
        if len(entity) > 1:
            limits, key = self._of_both, (entity[USER], entity[CLIENT_ID])
        elif USER in entity:
            limits, key = self._users, entity[USER]
        else:
            limits, key = self._clients, entity[CLIENT_ID]
        if limit is None:
            limits.pop(key, None)
        else:
            limits[key] = limit

    def find(self, user: str, client_id: str) -> tuple[float, Owner] | None:
        """The limit that counts, and with whom it is shared; None without limit.

        The order is Kafka's: the user's own before the default user's before those of client ids alone; each with the
        client id, with the default client id, without.
        """
        for owner in (user, None):
            for client in (client_id, None):
                limit = self._of_both.get((owner, client))
                if limit is not None:
                    return limit, (user, client_id)
            limit = self._users.get(owner)
            if limit is not None:
                return limit, (user, None)
        for client in (client_id, None):
            limit = self._clients.get(client)
            if limit is not None:
                return limit, (None, client_id)
        return None
