"""Descriptions and alterations of client quotas (KIP-546)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from ..metadata.metadata_store import StoreFailedError
from ..metadata.znodes import UnreadableNodeError
from .stored_quotas import alter_stored_quotas, stored_quotas

if TYPE_CHECKING:
    from ..metadata.config_store import ConfigStore
    from .entities import Entity
    from .quota_managers import QuotaManagers


class QuotaSettings:
    """The quotas of all entities, in the store and in memory. Used on the loop's thread only."""

    def __init__(self, config_store: ConfigStore, quotas: QuotaManagers, changing: asyncio.Lock) -> None:
        """`changing` is the lock of all changes of settings, which share the entities' nodes."""
        self._config_store = config_store
        self._quotas = quotas
        self._changing = changing

    def described(self) -> AsyncIterator[tuple[Entity, dict[str, float]]]:
        """Return every entity with its quotas, perhaps none. Raises StoreError."""
        return stored_quotas(self._config_store)

    async def check_host(self, entity: Entity) -> None:
        """Check a host as `QuotaManagers.check_host` does."""
        await self._quotas.check_host(entity)

    async def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set these checked quotas of an entity, from the next request on; None removes one. Raises KafkaError."""
        async with self._changing:
            try:
                present = await alter_stored_quotas(self._config_store, entity, changes)
            except (StoreFailedError, UnreadableNodeError) as error:
                raise error.as_answer() from error
            await self._quotas.changed(entity, present)
