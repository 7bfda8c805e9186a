"""The latest metrics that clients have pushed, within limits."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from .otlp_metrics import Labels, PushedMetrics

MAX_SERIES = 20_000
"""The limit for all clients together. A series takes less than 2 KB; the description of a client counts as a series."""


class Series(NamedTuple):
    """One number, under its name."""

    name: str
    is_counter: bool
    labels: Labels
    value: float


class ClientMetrics(NamedTuple):
    """The last metrics of one client. Immutable."""

    labels: Labels
    """The labels that identify the client."""
    about: Labels
    """The description of the client."""
    series: tuple[Series, ...]
    host: str


class ReceivedMetrics:
    """Metrics by client, the most recent client last. Owned by the loop thread."""

    def __init__(self) -> None:
        self._clients: dict[UUID, ClientMetrics] = {}
        self._by_host = Counter[str]()

    def take(self, client: UUID, labels: Labels, about: Labels, *, host: str, pushed: PushedMetrics) -> None:
        """Store the metrics of a client, which replace its previous metrics, except for deltas, which are added.

        Above the limit, the address with the most series loses its client with the oldest metrics, so that no client
        displaces all others.
        """
        before = self.forget(client)
        known = {(one.name, one.labels): one.value for one in before.series} if before is not None else {}
        series: dict[tuple[str, Labels], Series] = {}
        for name, is_counter, is_delta, point_labels, value in pushed.points:
            key = name, point_labels
            total = known.get(key, 0.0) + value if is_delta else value
            series[key] = Series(name, is_counter, point_labels, total)
        about = tuple((dict(pushed.resource) | dict(about)).items())
        self._clients[client] = ClientMetrics(labels, about, tuple(series.values()), host)
        self._by_host[host] += len(series) + 1
        while self._by_host.total() > MAX_SERIES:
            heaviest = max(self._by_host, key=self._by_host.__getitem__)
            self.forget(next(one for one, told in self._clients.items() if told.host == heaviest))

    def forget(self, client: UUID) -> ClientMetrics | None:
        """Remove a client; return its metrics, None if there were none."""
        told = self._clients.pop(client, None)
        if told is not None:
            self._by_host[told.host] -= len(told.series) + 1
            if not self._by_host[told.host]:
                del self._by_host[told.host]
        return told

    def all(self) -> list[ClientMetrics]:
        """Return the metrics of each client, in a list that another thread may read."""
        return list(self._clients.values())
