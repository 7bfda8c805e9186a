"""What a broker has beside its own parts when it is one of a cluster: its place there, and an ear for the others.

Everything here is made for a session with a store that other brokers share. A broker alone has none of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ..protocol.room_logger import room_logger
from .config.config_notices import ConfigNotices
from .metadata.membership import Membership
from .metadata.metadata_store import StoreError
from .quotas.stored_quotas import quotas_at

if TYPE_CHECKING:
    import asyncio

    from ..storage.found_logs import FoundFolder
    from .broker_state import BrokerState
    from .cluster_links import ClusterLinks
    from .config.broker_config import BrokerConfig
    from .metadata.cluster_store import ClusterStore
    from .metadata.metadata_store import MetadataStore
    from .metadata.znodes import BrokerRegistration, TopicRegistration
    from .metadata.zookeeper_settings import ZooKeeperSettings
    from .runtime.ports import Ports
    from .runtime.scheduler import Scheduler

logger = room_logger("cluster")

QUOTA_ENTITIES = ("users", "clients", "ips")
PATIENCE_PERCENT = 150
"""Of a session's timeout, for how long a killed broker's registration is waited for."""


async def zookeeper_session(
    settings: ZooKeeperSettings, loop: asyncio.AbstractEventLoop, ports: Ports
) -> MetadataStore:
    """A session with an ensemble. Raises StoreUnavailableError."""
    # A broker alone does not load what speaks to ZooKeeper.
    from .metadata.zookeeper_store import ZooKeeperStore

    return await ZooKeeperStore.open(settings, loop=loop, work=ports.work)


async def choose_broker_id(config: BrokerConfig, stored_id: int | None, cluster_store: ClusterStore) -> int:
    """The id that is configured, else the one that the log directories have, else one that nobody has."""
    if config.configured_broker_id is not None:
        return config.configured_broker_id
    if stored_id is not None:
        return stored_id
    if not config.broker_id_generation_enable:
        return config.broker_id
    return await cluster_store.next_broker_id(config.reserved_broker_max_id)


def strays_of_cluster(
    folders: Mapping[str, FoundFolder], topics: Mapping[str, TopicRegistration], unreadable: Container[str] = ()
) -> dict[str, str]:
    """Folders by path that are no partitions of this cluster, and why not.

    Whoever was away while a topic was deleted comes back with its folders: in a cluster nothing is adopted. They stay
    as they are. Of topics that are `unreadable` in the store nobody can tell.
    """
    found: dict[str, str] = {}
    for path, folder in folders.items():
        name, index = folder.topic_partition
        topic = topics.get(name)
        if name in unreadable:
            continue
        if topic is None or index not in topic.assignment:
            found[path] = f"the cluster has no partition {folder.topic_partition}"
        elif topic.topic_id.int and folder.topic_id not in (None, topic.topic_id):
            found[path] = f"its topic id is not that of {name}"
    return found


class ClusterMember:
    """One broker's dealings with the cluster, from its registration to its stop. Loop-thread only."""

    def __init__(
        self, state: BrokerState, links: ClusterLinks, registration: BrokerRegistration, scheduler: Scheduler
    ) -> None:
        """`state` are the broker's parts, `links` those to others, `registration` is where it is reached."""
        self._state = state
        self._links = links
        self._scheduler = scheduler
        self._membership = Membership(
            state.store,
            state.cluster_store,
            registration,
            patience_ms=state.config.zookeeper_session_timeout_ms * PATIENCE_PERCENT // 100,
            on_return=self._registered,
        )
        self._notices = ConfigNotices(state.store, state.config_store, state.dynamic_config)
        for entity_type in QUOTA_ENTITIES:
            self._notices.watch(entity_type, self._heed_quotas(entity_type))

    async def join(self) -> None:
        """Registers the broker; when this returns it is known who is controller.

        Raises KafkaError DUPLICATE_BROKER_REGISTRATION.
        """
        state = self._state
        self._registered(await self._membership.join())
        await self._notices.start(state.broker_id)
        await self._links.control.start()
        await self._learn_brokers()
        self._links.replication.schedule(self._scheduler)
        if state.config.auto_leader_rebalance_enable:
            self._scheduler.every(
                "leader balance",
                lambda: state.config.leader_imbalance_check_interval_seconds * 1000,
                self._balance_leaders,
            )

    async def leave(self) -> None:
        """Has others lead what this broker leads, while clients are served (`controlled.shutdown.enable`)."""
        if self._state.metadata.brokers.keys() - {self._state.broker_id}:
            await self._links.control.leave()

    async def close(self) -> None:
        """Takes no part any more; the registration ends with the session."""
        await self._notices.close()
        await self._membership.close()
        await self._links.close()

    async def _learn_brokers(self) -> None:
        """Looks up who is alive, for clients that ask before the controller has told this broker.

        Beyond Kafka, whose brokers tell of none then. Who lets go of a broker that it is not told of, as librdkafka
        does, is left without any that it could ask again.
        """
        with suppress(StoreError):  # the controller tells of them in a moment
            found = await self._state.cluster_store.brokers()
            if not self._state.metadata.brokers:
                self._state.metadata.set_brokers(found)

    def _registered(self, registration: BrokerRegistration) -> None:
        self._state.broker_epoch = registration.broker_epoch
        self._links.control.registered(registration)

    def _heed_quotas(self, entity_type: str) -> Callable[[str], Awaitable[None]]:
        state = self._state

        async def heed(name: str) -> None:
            await state.quotas.changed(*await quotas_at(state.config_store, entity_type, name))

        return heed

    async def _balance_leaders(self) -> None:
        if self._state.controller.is_active:
            await self._state.controller.balance_leaders()
