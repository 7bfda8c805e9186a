"""What each kind of quota asks of a client: how long it has to wait (Kafka's ClientQuotaManager and its kin)."""

from __future__ import annotations

import math

from ...protocol.errors import ErrorCode, KafkaError
from .client_limits import ClientLimits
from .rates import InUse, QuotaWindow, SampledRate, TokenBucket


class RateQuota:
    """A quota of something per second: bytes, or percent of time."""

    def __init__(self, window: QuotaWindow, *, longest_wait: float = math.inf) -> None:
        self.limits = ClientLimits()
        self._window = window
        self._longest_wait = longest_wait
        self._rates = InUse(lambda: SampledRate(window))

    def record(self, user: str, client_id: str, value: float, now: float) -> float:
        """Count a use; returns how many seconds the client has to wait for that."""
        found = self.limits.find(user, client_id)
        if found is None:
            return 0.0
        limit, owner = found
        rate = self._rates.get(owner, now)
        rate.record(value, now)
        return min(rate.excess(limit, now), self._longest_wait)

    def most_at_once(self, user: str, client_id: str) -> float:
        """More than this would be too much even for a client that has used nothing lately."""
        found = self.limits.find(user, client_id)
        return math.inf if found is None else found[0] * self._window.complete


class MutationQuota:
    """The quota of partitions that are created and deleted per second (KIP-599)."""

    def __init__(self, window: QuotaWindow) -> None:
        self.limits = ClientLimits()
        self._buckets = InUse(lambda: TokenBucket(window))

    def record(self, user: str, client_id: str, partitions: int, now: float) -> float:
        """Count a change whatever it costs; returns how many seconds the client has to wait for it."""
        found = self.limits.find(user, client_id)
        if found is None:
            return 0.0
        limit, owner = found
        bucket = self._buckets.get(owner, now)
        bucket.take(partitions, limit, now)
        return bucket.debt(limit, now)

    def debt(self, user: str, client_id: str, now: float) -> float:
        """Seconds until the client may change something again, 0 if it may."""
        found = self.limits.find(user, client_id)
        return 0.0 if found is None else self._buckets.get(found[1], now).debt(found[0], now)


def quota_exceeded() -> KafkaError:
    """What a change is refused with."""
    return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class ConnectionQuota:
    """The quota of new connections per second from one address (KIP-612)."""

    def __init__(self, window: QuotaWindow) -> None:
        self.limits: dict[str | None, float] = {}
        """By address; None is for those that have none of their own."""
        self._window = window
        self._rates = InUse(lambda: SampledRate(window))

    def wait(self, host: str, now: float) -> float:
        """Count a new connection and return 0, or count nothing and return for how many seconds to put it off."""
        limit = self.limits.get(host, self.limits.get(None))
        if limit is None:
            return 0.0
        rate = self._rates.get(host, now)
        rate.record(1.0, now)
        excess = rate.excess(limit, now)
        if excess > 0:
            rate.record(-1.0, now)
        return min(excess, self._window.seconds)


class CreationRate:
    """How many connections come in a second, to one listener or to all (KIP-402, KIP-612)."""

    def __init__(self, window: QuotaWindow) -> None:
        self._rate = SampledRate(window)

    def wait(self, limit: float, now: float) -> float:
        """Count a new connection; returns for how many seconds it has to wait before it is served."""
        self._rate.record(1.0, now)
        return self._rate.excess(limit, now)
