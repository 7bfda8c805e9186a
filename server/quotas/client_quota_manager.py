"""The quota managers: the limits of clients, and their throttle times (Kafka's ClientQuotaManager and others)."""

from __future__ import annotations

import math
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from .entities import CLIENT_ID, USER, Entity
from .rates import QuotaWindow, SampledRate, SensorRegistry, TokenBucket

Owner = tuple[str | None, str | None]
"""The user and client id that share a rate: client None for all clients of a user, user None for all users."""


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
        """Set the limit of an entity; None removes it."""
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
        """Return the limit of a client and the owner of its rate, None without a limit.

        The order is Kafka's: limits of the user, of the default user, of client ids alone; each with the client id,
        with the default client id, and without a client id.
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


class ClientQuotaManager:
    """A quota of bytes or percent of time per second (Kafka's ClientQuotaManager, ClientRequestQuotaManager)."""

    def __init__(self, window: QuotaWindow, *, max_wait: float = math.inf) -> None:
        self.limits = ClientLimits()
        self._window = window
        self._max_wait = max_wait
        self._rates = SensorRegistry(lambda: SampledRate(window))

    def record(self, user: str, client_id: str, value: float, now: float) -> float:
        """Record a value, and return the throttle time in seconds."""
        found = self.limits.find(user, client_id)
        if found is None:
            return 0.0
        limit, owner = found
        rate = self._rates.get(owner, now)
        rate.record(value, now)
        return min(rate.excess(limit, now), self._max_wait)

    def max_value_in_quota_window(self, user: str, client_id: str) -> float:
        """Return the largest value that does not throttle a client without earlier values."""
        found = self.limits.find(user, client_id)
        return math.inf if found is None else found[0] * self._window.complete


class ControllerMutationQuotaManager:
    """The quota of created and deleted partitions per second (KIP-599)."""

    def __init__(self, window: QuotaWindow) -> None:
        self.limits = ClientLimits()
        self._buckets = SensorRegistry(lambda: TokenBucket(window))

    def record(self, user: str, client_id: str, partitions: int, now: float) -> float:
        """Record a change of any size, and return the throttle time in seconds."""
        found = self.limits.find(user, client_id)
        if found is None:
            return 0.0
        limit, owner = found
        bucket = self._buckets.get(owner, now)
        bucket.take(partitions, limit, now)
        return bucket.debt(limit, now)

    def debt(self, user: str, client_id: str, now: float) -> float:
        """Return the seconds until the client may change partitions again, 0 if it may."""
        found = self.limits.find(user, client_id)
        return 0.0 if found is None else self._buckets.get(found[1], now).debt(found[0], now)


def quota_exceeded() -> KafkaError:
    """Return the error of a change beyond the quota."""
    return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class ConnectionRateQuotaManager:
    """The quota of new connections per second from one address (KIP-612)."""

    def __init__(self, window: QuotaWindow) -> None:
        self.limits: dict[str | None, float] = {}
        """The limits by address; None has the default limit."""
        self._window = window
        self._rates = SensorRegistry(lambda: SampledRate(window))

    def wait(self, host: str, now: float) -> float:
        """Record a new connection and return 0, or record nothing and return the throttle time in seconds."""
        limit = self.limits.get(host, self.limits.get(None))
        if limit is None:
            return 0.0
        rate = self._rates.get(host, now)
        rate.record(1.0, now)
        excess = rate.excess(limit, now)
        if excess > 0:
            rate.record(-1.0, now)
        return min(excess, self._window.seconds)


class ListenerConnectionRate:
    """The rate of new connections to one listener or to all (KIP-402, KIP-612)."""

    def __init__(self, window: QuotaWindow) -> None:
        self._rate = SampledRate(window)

    def wait(self, limit: float, now: float) -> float:
        """Record a new connection, and return the throttle time in seconds."""
        self._rate.record(1.0, now)
        return self._rate.excess(limit, now)
