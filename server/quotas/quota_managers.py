"""All client quotas of a broker and their limits (Kafka's QuotaFactory.QuotaManagers)."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address

from ...common.room_logger import room_logger
from ..config.broker_config import BrokerConfig
from .client_quota_manager import ClientQuotaManager, ConnectionRateQuotaManager, ControllerMutationQuotaManager
from .entities import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    invalid,
)
from .rates import QuotaWindow

logger = room_logger("quotas")

RESOLVE_SECONDS = 5.0
"""The timeout of the look-up of a host's addresses."""


class QuotaManagers:
    """The quota managers of a broker, used on the loop's thread only.

    They keep limits in memory: a handler writes to the store first and then calls `changed`. While no user and no
    client id has a quota, nothing is measured (`enforced`).
    """

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float]) -> None:
        """`stopwatch` is a clock in seconds that moves within a turn of the loop."""
        window = QuotaWindow(config.quota_window_num, config.quota_window_size_seconds)
        changes = QuotaWindow(config.controller_quota_window_num, config.controller_quota_window_size_seconds)
        self.loop = loop
        self.stopwatch = stopwatch
        self.produce = ClientQuotaManager(window)
        self.fetch = ClientQuotaManager(window)
        self.request = ClientQuotaManager(window, max_wait=window.seconds)
        """Request time, in percent of the loop's thread, which does the work of Kafka's network and I/O threads."""
        self.mutation = ControllerMutationQuotaManager(changes)
        self.connections = ConnectionRateQuotaManager(window)
        self.enforced = False
        """Whether a user or a client id has a quota."""
        self.enforced_listeners: list[Callable[[], None]] = []
        """Called when `enforced` changes."""
        self.throttled_requests: Counter[str] = Counter()
        """Throttled requests by the quota with the longest throttle time, and throttled connections."""
        self.throttle_seconds: defaultdict[str, float] = defaultdict(float)
        """The sums of their throttle times."""
        self._addresses: dict[str, Sequence[str]] = {}
        self._limits = {
            PRODUCER_BYTE_RATE: self.produce.limits,
            CONSUMER_BYTE_RATE: self.fetch.limits,
            REQUEST_PERCENTAGE: self.request.limits,
            CONTROLLER_MUTATION_RATE: self.mutation.limits,
        }

    def throttled(self, quota: str, seconds: float) -> None:
        """Count a throttled request or connection."""
        self.throttled_requests[quota] += 1
        self.throttle_seconds[quota] += seconds

    async def check_host(self, entity: Entity) -> None:
        """Raise KafkaError INVALID_REQUEST if the IP of an entity is neither an address nor a host name that resolves.

        Takes up to `RESOLVE_SECONDS`.
        """
        host = entity.get(IP)
        if host is not None and not await self._addresses_of(host):
            raise invalid(f"{host} is not a valid IP or resolvable host.")

    async def changed(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Apply all quotas of an entity."""
        if IP in entity:
            await self._host_changed(entity[IP], quotas.get(CONNECTION_CREATION_RATE))
            return
        for key, limits in self._limits.items():
            limits.set(entity, quotas.get(key))
        enforced = any(self._limits.values())
        if enforced != self.enforced:
            self.enforced = enforced
            for listener in self.enforced_listeners:
                listener()

    async def _host_changed(self, host: str | None, limit: float | None) -> None:
        limits = self.connections.limits
        keys: Sequence[str | None] = [None]
        if host is not None:
            keys = self._addresses.pop(host, ())
        for key in keys:
            limits.pop(key, None)
        if limit is None:
            return
        if host is not None:
            keys = self._addresses[host] = await self._addresses_of(host)
            if not keys:
                logger.error("host %s cannot be resolved any more; its quota is not applied", host)
        limits.update(dict.fromkeys(keys, limit))

    async def _addresses_of(self, host: str) -> Sequence[str]:
        """Return the addresses of a host, in the form in which connections have them."""
        try:
            return [str(ip_address(host))]
        except ValueError:
            try:
                async with asyncio.timeout(RESOLVE_SECONDS):
                    found = await self.loop.getaddrinfo(host, None)
            except (OSError, ValueError):  # TimeoutError is one, too, and UnicodeError for an invalid host name
                return []
            return list(dict.fromkeys(str(address[0]) for *_, address in found))
