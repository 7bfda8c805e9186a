"""A broker's part in a cluster: connections to other brokers, the controller, replication and the registration.

A broker alone has none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..common.room_logger import room_logger
from ..protocol.apis import ApiKey
from ..protocol.errors import KafkaError
from ..protocol.receive_buffer import FrameMemory
from .config.zk_config_manager import ZkConfigManager
from .controller.alter_partition_manager import DefaultAlterPartitionManager, ZkAlterPartitionManager
from .controller.controller_channel_manager import ControllerChannelManager
from .controller.controller_request_handler import ControllerRequestHandler
from .controller.kafka_controller import KafkaController
from .controller.remote_controller import RemoteController
from .metadata.kafka_healthcheck import KafkaHealthcheck
from .metadata.metadata_store import StoreError
from .metadata.producer_id_manager import ZkProducerIdManager
from .network.broker_connections import BrokerConnections
from .quotas.stored_quotas import quotas_at
from .replication.inter_broker_versions import highest_version, is_at_least
from .replication.replication import KEPT_FRAMES, Replication

if TYPE_CHECKING:
    from ..storage.found_logs import FoundFolder
    from ..storage.log_manager import LogManager
    from .broker_state import BrokerState
    from .cleaning.log_cleaner import LogCleaner
    from .config.broker_config import BrokerConfig
    from .config.dynamic_config import DynamicConfig
    from .config.listeners import ListenerConfig
    from .metadata.cluster_store import ClusterStore
    from .metadata.metadata_cache import MetadataCache
    from .metadata.metadata_store import MetadataStore
    from .metadata.metadata_stores import MetadataStores
    from .metadata.znodes import BrokerInfo, TopicRegistration
    from .metadata.zookeeper_settings import ZooKeeperSettings
    from .network.broker_connections import Endpoint
    from .replication.leader_and_isr import AlterPartitionManager
    from .replication.replica_manager import ReplicaManager
    from .runtime.ports import Ports
    from .runtime.scheduler import Scheduler
    from .security.inter_broker_security import InterBrokerSecurity

logger = room_logger("cluster")

QUOTA_ENTITIES = ("users", "clients", "ips")
REGISTRATION_WAIT_PERCENT = 150
"""The time for which a start waits for the session of a killed broker to expire, in percent of the session timeout."""
SINCE_ALTER_PARTITION = "2.7-IV2"
"""The first version in which leaders send AlterPartition; earlier leaders write their ISR into the store."""
MAX_RETRY_ROUNDS = 32
"""The longest pause, in rounds, between two attempts to create replicas without space on the disk."""


async def zookeeper_session(
    settings: ZooKeeperSettings, loop: asyncio.AbstractEventLoop, ports: Ports
) -> MetadataStore:
    """Open a session with an ensemble. Raises StoreUnavailableError."""
    # A broker alone does not load the ZooKeeper client.
    from .metadata.zookeeper_store import ZooKeeperStore

    return await ZooKeeperStore.open(settings, loop=loop, work=ports.work)


async def choose_broker_id(config: BrokerConfig, stored_id: int | None, cluster_store: ClusterStore) -> int:
    """Return the configured id, else the id in the log directories, else an unused id."""
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
    """Return the folders, by path, that are not partitions of the cluster, with the reason.

    A cluster adopts no partitions: the topic of an unknown folder was deleted while the broker was away. The folders
    are kept. Folders of topics that are `unreadable` in the store are left out.
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


class RetryBackoff:
    """Rounds in which to retry: the first, the second after that, the fourth after that, and so on."""

    def __init__(self) -> None:
        self._left = self._pause = 1

    def is_due(self) -> bool:
        """Count a round; return whether to retry in it."""
        self._left -= 1
        if self._left:
            return False
        self._pause = self._left = min(2 * self._pause, MAX_RETRY_ROUNDS)
        return True


class ClusterMember:
    """One broker's part in the cluster, from its construction to its stop. `BrokerServer` owns it; loop thread.

    `join` registers the broker. Nothing is sent to other brokers before that.
    """

    def __init__(
        self,
        broker_id: int,
        stores: MetadataStores,
        *,
        config: BrokerConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        dynamic_config: DynamicConfig,
        metadata: MetadataCache,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        cleaner: LogCleaner,
        outgoing: Callable[[ListenerConfig], InterBrokerSecurity],
    ) -> None:
        """`outgoing` returns how to connect to other brokers' listeners. Raises ConfigError without such a listener."""
        self._broker_id = broker_id
        self._stores = stores
        self._config = config
        self._dynamic_config = dynamic_config
        self._ports = ports
        self._metadata = metadata
        self._between_brokers = outgoing(config.inter_broker_listener)
        control = config.control_plane_listener
        control_plane = self._between_brokers if control is None else outgoing(control)
        # From this broker, as controller, to the others; and from this broker to the controller. Separate connections:
        # a slow request to the controller must not delay the controller's own requests.
        self._controller_to_brokers = self._connect(config.controller_socket_timeout_ms, control_plane)
        self._broker_to_controller = self._connect(config.controller_socket_timeout_ms, control_plane)
        # Two connections: AddPartitionsToTxn must not delay markers, for which readers of committed records wait.
        self.marker_connections = self._connect(config.request_timeout_ms)
        self.transaction_connections = self._connect(config.request_timeout_ms)
        self.share_state_connections = self._connect(config.request_timeout_ms)
        self.request_handler = ControllerRequestHandler(
            broker_id,
            replica_manager,
            metadata,
            dynamic_config,
            stores,
            offline=log_manager.held.offline,
            pause_cleaning=cleaner.deleting,
        )
        self._remote_controller = RemoteController(metadata, stores.cluster, self._broker_to_controller.send_request)
        self.controller = KafkaController(
            broker_id=broker_id,
            stores=stores,
            metadata=metadata,
            channel=ControllerChannelManager(
                broker_id,
                self.request_handler,
                self._controller_to_brokers.send_request,
                self._between_brokers.listener,
                config.inter_broker_protocol_version,
            ),
            config=config,
            dynamic_config=dynamic_config,
            chance=ports.random,
            remote_controller=self._remote_controller,
            request_handler=self.request_handler,
        )
        self.producer_ids = ZkProducerIdManager(stores.store, broker_id, self._allocate_producer_ids)
        self._alter_partition_manager = DefaultAlterPartitionManager(
            broker_id,
            lambda: self.request_handler.broker_epoch,
            self._remote_controller.send_request,
            config.inter_broker_protocol_version,
            self.controller,
        )
        is_controller_asked = is_at_least(config.inter_broker_protocol_version, SINCE_ALTER_PARTITION)
        self.isr_changes: AlterPartitionManager = (
            self._alter_partition_manager
            if is_controller_asked
            else ZkAlterPartitionManager(broker_id, stores.topics, stores.cluster)
        )
        self._replication = Replication(
            replica_manager,
            broker_id=broker_id,
            broker_epoch=lambda: self.request_handler.broker_epoch,
            config=config,
            metadata=metadata,
            isr_changes=self.isr_changes,
            connect=partial(self._connect, memory=FrameMemory(KEPT_FRAMES)),
            paused=cleaner.paused,
            stopwatch=ports.stopwatch,
            loop=loop,
        )
        dynamic_config.on_topic_change(self.controller.on_topic_config_changed)
        dynamic_config.on_broker_change(self._replication.fetchers.settings_changed)
        self._retry_backoff = RetryBackoff()
        self.forwarding_manager = None
        """Only brokers of a KRaft cluster forward requests."""
        self._state: BrokerState | None = None
        self._lifecycle: KafkaHealthcheck | None = None
        self._config_manager: ZkConfigManager | None = None

    def _connect(
        self, timeout_ms: int, outgoing: InterBrokerSecurity | None = None, *, memory: FrameMemory | None = None
    ) -> BrokerConnections:
        outgoing = outgoing or self._between_brokers
        endpoint, rng = partial(self._endpoint, outgoing.listener), self._ports.random
        return BrokerConnections(
            self._broker_id, endpoint, rng, timeout_ms=timeout_ms, outgoing=outgoing, memory=memory
        )

    def _endpoint(self, listener: str, broker_id: int) -> Endpoint | None:
        """Return the endpoint of a live broker."""
        found = self._metadata.endpoint(broker_id, listener)
        return None if found is None else (found.host, found.port)

    # -- membership ------------------------------------------------------------------------------------------------

    async def join(self, state: BrokerState, registration: BrokerInfo, scheduler: Scheduler) -> None:
        """Register the broker. When this returns a controller is elected.

        Raises KafkaError DUPLICATE_BROKER_REGISTRATION.
        """
        self._state = state
        self._lifecycle = KafkaHealthcheck(
            self._stores.store,
            self._stores.cluster,
            registration,
            patience_ms=self._config.zookeeper_session_timeout_ms * REGISTRATION_WAIT_PERCENT // 100,
            on_return=self._registered,
        )
        self._config_manager = ZkConfigManager(self._stores.store, self._stores.configs, self._dynamic_config)
        for entity_type in QUOTA_ENTITIES:
            self._config_manager.add_handler(entity_type, self._quota_reader(state, entity_type))
        self._registered(await self._lifecycle.join())
        await self._config_manager.start(self._broker_id)
        await self.controller.startup()
        await self._load_brokers()
        self._replication.schedule(scheduler)
        if self._config.auto_leader_rebalance_enable:
            scheduler.every(
                "leader balance",
                lambda: self._config.leader_imbalance_check_interval_seconds * 1000,
                self.controller.check_and_trigger_auto_leader_rebalance,
            )

    def _registered(self, registration: BrokerInfo) -> None:
        if self._state is not None:
            self._state.broker_epoch = registration.broker_epoch
        self.request_handler.registered(registration.broker_epoch)

    async def _load_brokers(self) -> None:
        """Load the live brokers, for clients that send requests before the controller's first UpdateMetadata.

        Kafka's brokers return none until then. A client that drops the brokers missing in a response, as librdkafka
        does, is left without any broker to connect to.
        """
        with suppress(StoreError):  # the controller's UpdateMetadata follows
            found = await self._stores.cluster.brokers()
            if not self._metadata.brokers:
                self._metadata.set_brokers(found)

    def _quota_reader(self, state: BrokerState, entity_type: str) -> Callable[[str], Awaitable[None]]:
        async def read(name: str) -> None:
            await state.quotas.changed(*await quotas_at(self._stores.configs, entity_type, name))

        return read

    async def leave(self) -> bool:
        """Move leaders to other brokers while clients are served (`controlled.shutdown.*`); return whether all moved.

        Kafka's KafkaServer.controlledShutdown.
        """
        config = self._config
        if not self._metadata.brokers.keys() - {self._broker_id} or not config.controlled_shutdown_enable:
            return False
        version = highest_version(ApiKey.CONTROLLED_SHUTDOWN, config.inter_broker_protocol_version)
        for attempt in range(config.controlled_shutdown_max_retries):
            if attempt:
                await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
            broker_epoch = self.request_handler.broker_epoch
            try:
                if self.controller.is_active:
                    remaining = len(await self.controller.controlled_shutdown(self._broker_id, broker_epoch))
                else:
                    remaining = await self._remote_controller.controlled_shutdown(
                        self._broker_id, broker_epoch, version
                    )
            except (KafkaError, StoreError) as error:
                logger.info("the controlled shutdown has failed and is retried: %s", error)
                continue
            if not remaining:
                return True
            logger.info("%d partitions have no other leader yet", remaining)
        logger.warning("stopping although this broker still leads partitions with other replicas")
        return False

    async def close(self) -> None:
        """Leave the cluster; the registration ends with the session."""
        if self._config_manager is not None:
            await self._config_manager.close()
        if self._lifecycle is not None:
            await self._lifecycle.close()
        await self._alter_partition_manager.close()
        await self.controller.shutdown()
        await self._replication.close()
        for connections in (
            self._controller_to_brokers,
            self._broker_to_controller,
            self.marker_connections,
            self.transaction_connections,
            self.share_state_connections,
        ):
            connections.close()

    # -- requests to the controller --------------------------------------------------------------------------------

    async def _allocate_producer_ids(self) -> range:
        """Return a block of producer ids from the controller, or from the store if there is no response."""
        if not self.controller.is_active:
            try:
                return await self._remote_controller.allocate_producer_ids(
                    self._broker_id, self.request_handler.broker_epoch
                )
            except KafkaError as error:
                logger.info(
                    "the controller allocated no producer ids, claiming a block in the metadata store: %s", error
                )
        return await self.producer_ids.allocate_producer_id_block(self._broker_id)

    async def retry_replicas(self) -> None:
        """Have the controller on another broker retry replicas that could not be created, less and less often.

        A log-directory event makes the controller retry each replica of this broker, as Kafka's controller does.
        """
        if self.controller.is_active or not self.request_handler.lacks_replicas:
            self._retry_backoff = RetryBackoff()
        elif self._retry_backoff.is_due():
            await self._remote_controller.write_log_dir_event(self._broker_id)
