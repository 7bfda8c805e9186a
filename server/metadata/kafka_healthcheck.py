"""The registration of this broker: an ephemeral node under `/brokers/ids`, created again in each new session.

The name is that of Kafka 0.8. It is not a health check: see `server/runtime/health.py`.

While the connection to the store is lost a broker continues with its last LeaderAndIsr, as Kafka's brokers do: errors
of the controller or of replicas reveal that other brokers lead its partitions. When a session expires its node is
deleted, and other brokers may become leaders. The broker then registers again, with a new epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError
from .cluster_store import ClusterStore
from .metadata_store import MetadataStore, SessionState, StoreError, WatchEvent
from .znodes import BrokerInfo

logger = room_logger("membership")

RETRY_S = 1.0
"""Pause before another attempt to register."""


class KafkaHealthcheck:
    """Registers a broker, and again after each loss of the session. It runs on the loop thread."""

    def __init__(
        self,
        store: MetadataStore,
        cluster_store: ClusterStore,
        registration: BrokerInfo,
        *,
        patience_ms: int,
        on_return: Callable[[BrokerInfo], None],
    ) -> None:
        """`patience_ms` is the time for which a start waits until the node of the broker's last session is deleted.

        `on_return` is called with each registration after the first, with its epoch.
        """
        self._store = store
        self._cluster = cluster_store
        self._registration = registration
        self._patience_s = patience_ms / 1000
        self._on_return = on_return
        self._session = 0
        self._coming_back: asyncio.Task[None] | None = None
        self._closed = False

    async def join(self) -> BrokerInfo:
        """Register the broker and return it with its epoch.

        Raises KafkaError DUPLICATE_BROKER_REGISTRATION if another broker keeps the id for longer than a session lives
        without its broker.
        """
        try:
            async with asyncio.timeout(self._patience_s):
                await self._await_free_id()
        except TimeoutError:
            logger.warning("broker id %d is still registered by another session", self._registration.broker_id)
        registered = await self._register()
        self._store.on_state_change(self._session_changed)
        return registered

    async def close(self) -> None:
        """Stop registering the broker."""
        self._closed = True
        if self._coming_back is not None:
            self._coming_back.cancel()
            await asyncio.gather(self._coming_back, return_exceptions=True)

    async def _await_free_id(self) -> None:
        """Wait until the session of a killed broker with this id has expired."""
        while True:
            changed = asyncio.Event()

            def notify(_: WatchEvent, changed: asyncio.Event = changed) -> None:
                changed.set()

            if not await self._cluster.watch_broker(self._registration.broker_id, notify):
                return
            await changed.wait()

    async def _register(self) -> BrokerInfo:
        registered = await self._cluster.register_broker(self._registration, self._session)
        self._session = self._store.session_id
        return registered

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._store.session_id != self._session and not self._closed:
            if self._coming_back is not None:
                self._coming_back.cancel()
            self._coming_back = asyncio.ensure_future(self._come_back())

    async def _come_back(self) -> None:
        while True:
            try:
                registered = await self._register()
            except (StoreError, KafkaError) as error:
                logger.warning("the broker could not be registered again, retrying: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                logger.info("registered again, with broker epoch %d", registered.broker_epoch)
                self._on_return(registered)
                return
