"""All client quotas of a broker: what is set, and what each request is charged with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address

from ...protocol.room_logger import room_logger
from ..config.broker_config import BrokerConfig
from .charge import Charge
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
from .managers import ConnectionQuota, MutationQuota, RateQuota
from .rates import QuotaWindow

logger = room_logger("quotas")

RESOLVE_SECONDS = 5.0
"""How long the address of a host is asked for."""


class ClientQuotas:
    """Kafka's QuotaFactory. Loop-thread only.

    Nothing is stored here for longer than the process lives: the handler writes to the store first, then calls
    `changed`. Without a quota for users or client ids nothing is measured either: `enforced` says so.
    """

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float]) -> None:
        """`stopwatch` is a clock in seconds that moves within a turn of the loop."""
        window = QuotaWindow(config.quota_window_num, config.quota_window_size_seconds)
        changes = QuotaWindow(config.controller_quota_window_num, config.controller_quota_window_size_seconds)
        self.time = loop.time
        self.stopwatch = stopwatch
        self.produce = RateQuota(window)
        self.fetch = RateQuota(window)
        self.request = RateQuota(window, longest_wait=window.seconds)
        """In percent of the time of the loop's thread, which does what Kafka's network and I/O threads do."""
        self.mutation = MutationQuota(changes)
        self.connections = ConnectionQuota(window)
        self.enforced = False
        """Whether there is any quota for a user or a client id."""
        self._loop = loop
        self._addresses: dict[str, Sequence[str]] = {}
        self._limits = {
            PRODUCER_BYTE_RATE: self.produce.limits,
            CONSUMER_BYTE_RATE: self.fetch.limits,
            REQUEST_PERCENTAGE: self.request.limits,
            CONTROLLER_MUTATION_RATE: self.mutation.limits,
        }

    def charge(self, user: str, client_id: str | None, size: int) -> Charge:
        """What a request of `size` bytes that is about to be handled will be charged with."""
        return Charge(self, user, client_id or "", size)

    async def check_host(self, entity: Entity) -> None:
        """Raise KafkaError INVALID_REQUEST for an entity that is meant to be a host and is none.

        May take as long as `RESOLVE_SECONDS`: the address of a name may have to come from far away.
        """
        host = entity.get(IP)
        if host is not None and not await self._addresses_of(host):
            raise invalid(f"{host} is not a valid IP or resolvable host.")

    async def changed(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        if IP in entity:
            await self._host_changed(entity[IP], quotas.get(CONNECTION_CREATION_RATE))
            return
        for key, limits in self._limits.items():
            limits.set(entity, quotas.get(key))
        self.enforced = any(self._limits.values())

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
                logger.error("There is no host %s any more; its quota is not kept", host)
        limits.update(dict.fromkeys(keys, limit))

    async def _addresses_of(self, host: str) -> Sequence[str]:
        """The addresses of a host, or an address itself as connections have it."""
        try:
            return [str(ip_address(host))]
        except ValueError:
            try:
                async with asyncio.timeout(RESOLVE_SECONDS):
                    found = await self._loop.getaddrinfo(host, None)
            except (OSError, ValueError):  # among them TimeoutError, and UnicodeError for what no name may look like
                return []
            return list(dict.fromkeys(str(address[0]) for *_, address in found))
