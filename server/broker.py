"""The composition root: builds every part of a broker, starts them in order and stops them in reverse.

Kafka's BrokerServer. Nothing here decides anything; it says who knows whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.room_logger import room_logger
from ..storage.log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from ..storage.reserve import Reserve
from .apis.kafka_apis import KafkaApis
from .apis.request_log import RequestLog
from .broker_state import BrokerState, services
from .cleaning.cleaner_http import CleanerRoutes
from .cleaning.log_cleaner import LogCleaner
from .cluster_links import ClusterLinks
from .cluster_member import ClusterMember, choose_broker_id, strays_of_cluster, zookeeper_session
from .config.dynamic_config import DynamicConfig
from .config.zookeeper import zookeeper_settings
from .controller.adoption import FoundReplica, strays
from .controller.cluster_control import ClusterStores
from .controller.controller import Controller
from .controller.replica_channel import LocalReplicaChannel
from .controller.topic_rules import TopicCreation
from .coordinator.group.coordinator import GroupCoordinator
from .coordinator.transaction.transactions import Transactions
from .metadata.cluster_features import TRANSACTION_VERSION, ClusterFeatures
from .metadata.cluster_store import ClusterStore
from .metadata.config_store import ConfigStore
from .metadata.metadata_cache import MetadataCache
from .metadata.producer_ids import ProducerIds
from .metadata.topic_store import TopicStore
from .metadata.znodes import TRANSACTION_LEVELS, BrokerEndpoint, BrokerRegistration
from .network.socket_server import SocketServer
from .quotas.client_quotas import ClientQuotas
from .quotas.replication_quota import moving_quota
from .quotas.stored_quotas import stored_quotas
from .replication.fetch_session import FetchSessions
from .replication.log_dir_mover import LogDirMover
from .replication.log_directories import LogDirectories
from .replication.replica_manager import ReplicaManager
from .runtime.health import HealthServer
from .runtime.scheduler import Scheduler
from .runtime.turns import LongWork, Turns
from .security.broker_security import BrokerSecurity

if TYPE_CHECKING:
    from ..protocol.topic_partition import TopicPartition
    from ..storage.log_manager import LogManager
    from .config.broker_config import BrokerConfig
    from .config.listeners import ListenerConfig
    from .metadata.metadata_store import MetadataStore
    from .metrics.metrics_http import MetricsServer
    from .runtime.ports import Ports
    from .security.authorizer import Authorizer
    from .telemetry.client_telemetry import ClientTelemetry

logger = room_logger("broker")

FLUSH_CHECK_MS = 1000
"""How often logs are looked at whose `flush.ms` may have passed."""
RESERVE_CHECK_MS = 10_000
"""How often the room that is kept on each disk is filled up again."""
REPLICA_RETRY_MS = 10_000
"""How often a partition that found no room for its log is tried again."""
DELETION_LANE = "#deletion"
"""The lane that deletes files: freeing the blocks of a large one takes a while, for which no append should wait."""
LOG_LEVEL_CHECK_MS = 1000
"""How often the level of the request log is looked at."""
DELETION_CHECK_MS = 1000
"""How often folders of deleted topics whose delay is over are removed."""


class BrokerServer:
    """One broker on one loop. `start` once, `stop` once; `failed` is set when it cannot go on by itself."""

    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        *,
        open_store: Callable[[], MetadataStore] | None = None,
        join_store: Callable[[], Awaitable[MetadataStore]] | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`open_store` gives what holds the metadata of a broker alone, `join_store` a session with what a cluster
        shares (`zookeeper.connect` is the usual way), `authorizer` decides who may do what.

        Raises ConfigError for a way to ZooKeeper that cannot be gone.
        """
        self.config = config
        self.failed = asyncio.Event()
        self._ports = ports
        self._long_work = LongWork(loop, ports.stopwatch)
        self._loop = loop
        self._open_store = open_store or self._embedded_store
        zookeeper = zookeeper_settings(config)
        if join_store is None and zookeeper is not None:
            join_store = partial(zookeeper_session, zookeeper, loop, ports)
        self._join_store = join_store
        self._is_alone = join_store is None and not config.coordinator_addresses
        self._authorizer = authorizer
        self._scheduler = Scheduler(loop)
        self._stops: list[Callable[[], Awaitable[object]]] = []
        self._dynamic_config = DynamicConfig(config)
        self._directories = LogDirectories(config, ports, loop, self._dynamic_config)
        self._state: BrokerState | None = None
        self._sockets: SocketServer | None = None
        self._apis: KafkaApis | None = None
        self._links: ClusterLinks | None = None
        self._member: ClusterMember | None = None
        self._stopping = False
        self.health: HealthServer | None = None
        """Answers readiness probes and shows the cleaner, if `health.port` asks for it."""
        self.metrics: MetricsServer | None = None
        """Tells what is measured, if `metrics.listeners` asks for it."""
        if config.health_port is not None:
            routes = CleanerRoutes(lambda: self.state.cleaner).routes()
            self.health = HealthServer("127.0.0.1", config.health_port, self._health, loop, routes)

    @property
    def state(self) -> BrokerState:
        """The parts, once started."""
        if self._state is None:
            raise RuntimeError("the broker is not started")
        return self._state

    @property
    def listeners(self) -> list[ListenerConfig]:
        """The bound listeners with their real ports."""
        return self._sockets.listeners if self._sockets is not None else []

    @property
    def sockets(self) -> SocketServer:
        """The connections, once started."""
        if self._sockets is None:
            raise RuntimeError("the broker is not started")
        return self._sockets

    @property
    def apis(self) -> KafkaApis:
        """What requests go through, once started."""
        if self._apis is None:
            raise RuntimeError("the broker is not started")
        return self._apis

    # -- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the logs, elect leaders, accept connections. When this returns clients are served.

        Raises OSError (a port or a directory cannot be had), StorageError, ConfigError, KafkaError. After a failure
        `stop` gives back what was taken.
        """
        dynamic_config, log_manager = self._dynamic_config, self._directories.log_manager
        self._directories.open()
        self._stops.append(self._shut_down_logs)
        stored_id, stored_cluster_id = log_manager.stored_identity()
        await self._directories.use_reserves(Reserve.give_up)
        store = self._open_store() if self._join_store is None else await self._join_store()
        self._stops.append(store.close)
        await self._serve_tree(store)
        cluster_store = ClusterStore(store, now_ms=self._ports.now_ms, token_bytes=self._ports.token_bytes)
        topic_store = TopicStore(store, token_bytes=self._ports.token_bytes)
        config_store = ConfigStore(store, now_ms=self._ports.now_ms)
        if self._is_alone:
            broker_id, adopt = self._choose_broker_id(stored_id), strays
            cluster_id = await cluster_store.prepare(stored_cluster_id)
        else:
            broker_id, adopt = await choose_broker_id(self.config, stored_id, cluster_store), strays_of_cluster
            cluster_id = await cluster_store.prepare()
        log_manager.write_identity(broker_id, cluster_id, version=1 if self._is_alone else 0)
        await dynamic_config.load(config_store, broker_id)
        quotas = await self._load_quotas(store)
        security = BrokerSecurity(
            self.config, store, self._ports, self._loop, config_store=config_store, authorizer=self._authorizer
        )
        self._stops.append(security.close)
        await security.start()
        dynamic_config.on_broker_change(security.reload)
        topics = await topic_store.find_topics()
        by_name, unreadable = topics.by_name(), topics.unreadable
        await self._directories.load(partial(adopt, topics=by_name, unreadable=unreadable), by_name.keys() | unreadable)
        self._state = self._build_state(
            broker_id=broker_id,
            cluster_id=cluster_id,
            stores=ClusterStores(store, cluster_store, topic_store, config_store),
            dynamic_config=dynamic_config,
            log_manager=log_manager,
            quotas=quotas,
            security=security,
        )
        await self._serve(self._state)

    def _choose_broker_id(self, stored_id: int | None) -> int:
        """The one that is configured, else the one that the log directories have."""
        if self.config.configured_broker_id is not None:
            return self.config.configured_broker_id
        return self.config.broker_id if stored_id is None else stored_id

    async def _load_quotas(self, store: MetadataStore) -> ClientQuotas:
        quotas = ClientQuotas(self.config, self._loop, self._ports.stopwatch)
        async for entity, limits in stored_quotas(store):
            await quotas.changed(entity, limits)
        return quotas

    def _build_state(
        self,
        *,
        broker_id: int,
        cluster_id: str,
        stores: ClusterStores,
        dynamic_config: DynamicConfig,
        log_manager: LogManager,
        quotas: ClientQuotas,
        security: BrokerSecurity,
    ) -> BrokerState:
        """All parts that handlers reach, none of them at work yet."""
        config, ports, turns = self.config, self._ports, Turns(self._loop, self._ports.collect_new)
        metadata, replica_manager, cleaner, controller = self._topic_parts(
            broker_id=broker_id,
            cluster_id=cluster_id,
            log_manager=log_manager,
            stores=stores,
            dynamic_config=dynamic_config,
            security=security,
        )
        producer_ids = ProducerIds(stores.store, broker_id) if self._links is None else self._links.control.producer_ids
        features = ClusterFeatures(stores.store, stores.cluster)
        groups, transactions = self._coordinators(
            replica_manager,
            metadata,
            controller,
            producer_ids=producer_ids,
            features=features,
            dynamic_config=dynamic_config,
            turns=turns,
        )
        moving = moving_quota(config, self._loop.time)
        return BrokerState(
            broker_id=broker_id,
            cluster_id=cluster_id,
            broker_epoch=-1,
            config=config,
            ports=ports,
            store=stores.store,
            cluster_store=stores.cluster,
            config_store=stores.configs,
            dynamic_config=dynamic_config,
            metadata=metadata,
            controller=controller,
            orders=None if self._links is None else self._links.control.orders,
            producer_ids=producer_ids,
            features=features,
            log_manager=log_manager,
            replica_manager=replica_manager,
            cleaner=cleaner,
            mover=LogDirMover(log_manager, replica_manager, cleaner, ports, self._loop, quota=moving),
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, ports.random),
            turns=turns,
            long_work=self._long_work,
            groups=groups,
            transactions=transactions,
            quotas=quotas,
            security=security,
            telemetry=self._telemetry(dynamic_config),
        )

    def _telemetry(self, dynamic_config: DynamicConfig) -> ClientTelemetry | None:
        """Clients are asked for their metrics only where somebody can read them."""
        if not self.config.is_measured:
            return None
        from .telemetry.client_telemetry import ClientTelemetry, can_be_read

        if not can_be_read():
            return None
        ports = self._ports
        return ClientTelemetry(
            self.config, dynamic_config, now=self._loop.time, token_bytes=ports.token_bytes, work=ports.work
        )

    def _coordinators(
        self,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: Controller,
        *,
        producer_ids: ProducerIds,
        features: ClusterFeatures,
        dynamic_config: DynamicConfig,
        turns: Turns,
    ) -> tuple[GroupCoordinator, Transactions]:
        """Of groups, and of transactions, in which offsets of groups are committed."""
        groups = GroupCoordinator(
            config=self.config,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            dynamic_config=dynamic_config,
            ports=self._ports,
            loop=self._loop,
            turns=turns,
            long_work=self._long_work,
        )
        transactions = Transactions(
            config=self.config,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            producer_ids=producer_ids,
            offsets=groups,
            ports=self._ports,
            loop=self._loop,
            long_work=self._long_work,
            version=partial(features.level, TRANSACTION_VERSION),
            others=None if self._links is None else self._links.transactions,
        )
        return groups, transactions

    def _topic_parts(
        self,
        *,
        broker_id: int,
        cluster_id: str,
        log_manager: LogManager,
        stores: ClusterStores,
        dynamic_config: DynamicConfig,
        security: BrokerSecurity,
    ) -> tuple[MetadataCache, ReplicaManager, LogCleaner, Controller]:
        """The parts that know topics: what is believed of them, their replicas here, who cleans, and who decides."""
        metadata = MetadataCache(cluster_id)
        replica_manager = ReplicaManager(
            log_manager=log_manager,
            metadata=metadata,
            topic_log_config=dynamic_config.topic_log_config,
            ports=self._ports,
            long_work=self._long_work,
            loop=self._loop,
            acks_all_on_disk=self.config.acks_all_durability == "disk",
            is_verification_needed=lambda: self.config.transaction_partition_verification_enable,
            on_partitions_lost=self._partitions_lost,
            on_all_failed=self.failed.set,
        )
        cleaner = LogCleaner(log_manager, replica_manager, config=self.config, ports=self._ports, loop=self._loop)
        dynamic_config.on_topic_change(replica_manager.topic_config_changed)
        dynamic_config.on_topic_change(lambda _: cleaner.settings_changed())
        dynamic_config.on_broker_change(cleaner.settings_changed)
        if not self._is_alone:
            self._links = ClusterLinks(
                broker_id,
                stores,
                config=self.config,
                ports=self._ports,
                loop=self._loop,
                dynamic_config=dynamic_config,
                metadata=metadata,
                log_manager=log_manager,
                replica_manager=replica_manager,
                cleaner=cleaner,
                outgoing=security.outgoing,
            )
            return metadata, replica_manager, cleaner, self._links.control.controller
        controller = Controller(
            broker_id=broker_id,
            cluster_store=stores.cluster,
            topic_store=stores.topics,
            metadata=metadata,
            channel=LocalReplicaChannel(broker_id, replica_manager, cleaner.deleting),
            config=self.config,
            topic_configs=dynamic_config,
            chance=self._ports.random,
        )
        return metadata, replica_manager, cleaner, controller

    async def _serve(self, state: BrokerState) -> None:
        """Bind, register, elect, accept."""
        self._stops.append(state.features.close)
        await state.features.start()
        apis = self._apis = KafkaApis(
            services(state), self._loop, quotas=state.quotas, turns=state.turns, authorizer=state.security.authorizer
        )
        sockets = self._sockets = SocketServer(
            self.config,
            apis.handle,
            self._loop,
            self._ports.machine_name,
            open_files=self._ports.open_files,
            connection_quota=state.quotas.connections,
            doors=state.security.doors,
            work=self._ports.work,
        )
        await sockets.bind()
        self._stops += [sockets.close, apis.close]
        registration = BrokerRegistration(
            broker_id=state.broker_id,
            endpoints=tuple(
                BrokerEndpoint(
                    listener.name, listener.advertised_host, listener.advertised_port, listener.security_protocol
                )
                for listener in sockets.listeners
            ),
            rack=self.config.broker_rack,
            transaction_levels=TRANSACTION_LEVELS,
        )
        if self._links is None:
            await self._serve_alone(state, registration)
        else:
            self._member = ClusterMember(state, self._links, registration, self._scheduler)
            self._stops.append(self._member.close)
            await self._member.join()
        state.groups.start()
        state.transactions.coordinator.start()
        state.mover.start()
        self._stops += [state.groups.close, state.transactions.close, state.mover.close]
        # Before anybody else can take what the start has left of it.
        await self._directories.use_reserves(Reserve.fill)
        await sockets.start()
        await self._serve_operators(state)
        self._schedule(state)
        self._stops.append(self._scheduler.close)
        state.cleaner.start()
        self._stops.append(state.cleaner.close)

    async def _serve_operators(self, state: BrokerState) -> None:
        """Open what is asked over HTTP."""
        if self.health is not None:
            await self.health.start()
            self._stops.append(self.health.close)
            # Where any free port will do, whoever asks for the setting wants to know which one it became.
            self.config.settle("health.port", str(self.health.port))
        if self.config.is_measured:
            from .metrics.metrics_http import MetricsServer

            self.metrics = MetricsServer(self.config, self._loop, self._health)
            self._stops.append(self.metrics.close)
            await self.metrics.start(state, self.apis, self.sockets)

    async def _serve_alone(self, state: BrokerState, registration: BrokerRegistration) -> None:
        state.broker_epoch = (await state.cluster_store.register_broker(registration)).broker_epoch
        found = state.log_manager.identities()
        await state.controller.start({key: FoundReplica(*identity) for key, identity in found.items()})

    async def stop(self, *, leave: bool = True) -> None:
        """Kafka's clean shutdown: no new requests, waiting ones answered, logs flushed and marked clean.

        One of a cluster lets others lead first; without `leave` it is missed, as after a kill.
        """
        self._stopping = True
        if self._member is not None and leave:
            await self._member.leave()
        if self._sockets is not None:
            await self._sockets.stop_accepting()
        if self._state is not None:
            await self._directories.use_reserves(Reserve.give_up)
            await self._state.replica_manager.finish_flushes()
            self._state.replica_manager.complete_all()
        while self._stops:
            stop = self._stops.pop()
            try:
                await stop()
            except Exception:
                logger.exception("a part of the broker did not stop cleanly")
        self._ports.work.close()

    # -- topics, for embedders -------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], *, exist_ok: bool = False
    ) -> None:
        """Create a topic as CreateTopics does. Raises KafkaError."""
        wish = TopicCreation(name, num_partitions=partitions, config=dict(config))
        result = (await self.state.controller.create_topics([wish]))[name]
        if isinstance(result, KafkaError) and not (exist_ok and result.code is ErrorCode.TOPIC_ALREADY_EXISTS):
            raise result

    async def delete_topic(self, name: str) -> None:
        """Delete a topic as DeleteTopics does. Raises KafkaError."""
        error = (await self.state.controller.delete_topics([name]))[name]
        if error is not None:
            raise error

    # -- inside ----------------------------------------------------------------------------------------------------

    def _health(self) -> tuple[bool, dict[str, object]]:
        """Ready or not, and what a person wants to see beside it."""
        state = self._state
        ready = state is not None and not self._stopping and not self.failed.is_set()
        broker_id = self.config.broker_id if state is None else state.broker_id
        return ready, {"broker.id": broker_id, "listeners": [str(one) for one in self.listeners]}

    def _embedded_store(self) -> MetadataStore:
        from .metadata.embedded_store import EmbeddedStore  # brokers of an ensemble are spared SQLite

        return EmbeddedStore.open(
            self.config.metadata_store_path,
            now_ms=self._ports.now_ms,
            work=self._ports.work,
            durable=self.config.acks_all_durability == "disk",
            lasting=self._ports.is_lasting,
            reserve=self._directories.store_reserve,
            keep_sessions=bool(self.config.coordinator_addresses),
        )

    async def _serve_tree(self, store: MetadataStore) -> None:
        """Let other brokers use the store that is here, if they may. Raises OSError."""
        addresses = self.config.coordinator_addresses
        if not addresses:
            return
        from .metadata.embedded_store import EmbeddedStore
        from .metadata.served.tree_server import TreeServer

        if not isinstance(store, EmbeddedStore):
            return
        token_bytes, open_files = self._ports.token_bytes, self._ports.open_files
        server = TreeServer(store.line, addresses, self._loop, token_bytes=token_bytes, open_files=open_files)
        self._stops.append(server.close)
        await server.start()
        # Where any free port will do, whoever asks for the setting wants to know which one it became.
        self.config.settle("coordinator.listeners", server.bound)

    async def _shut_down_logs(self) -> None:
        state = self._state
        if state is None:
            await self._directories.shut_down(None, -1)
        else:
            await self._directories.shut_down(state.replica_manager, state.broker_epoch)

    def _schedule(self, state: BrokerState) -> None:
        """Kafka's log tasks at Kafka's intervals."""
        config, every = self.config, self._scheduler.every
        logs, run_on_lanes = state.log_manager, state.replica_manager.run_on_lanes
        delay_ms = config.log_initial_task_delay_ms
        every(
            "retention",
            lambda: config.log_retention_check_interval_ms,
            lambda: state.replica_manager.retain(list(logs.logs)),
            delay_ms=delay_ms,
        )
        every(
            "flush",
            lambda: min(config.log_flush_scheduler_interval_ms, FLUSH_CHECK_MS),
            state.replica_manager.flush_overdue,
        )
        every("deletion", lambda: DELETION_CHECK_MS, lambda: run_on_lanes(logs.deletion_tasks(), DELETION_LANE))
        every("reserve", lambda: RESERVE_CHECK_MS, lambda: self._directories.use_reserves(Reserve.fill))
        every("replicas without room", lambda: REPLICA_RETRY_MS, self._retry_replicas)
        checkpoints: tuple[tuple[str, Callable[[], int]], ...] = (
            (HIGH_WATERMARK_CHECKPOINT, lambda: config.replica_high_watermark_checkpoint_interval_ms),
            (RECOVERY_POINT_CHECKPOINT, lambda: config.log_flush_offset_checkpoint_interval_ms),
            (LOG_START_OFFSET_CHECKPOINT, lambda: config.log_flush_start_offset_checkpoint_interval_ms),
        )
        for name, interval_ms in checkpoints:
            every(name, interval_ms, partial(self._checkpoint, name))
        every(
            "producer id expiration",
            lambda: config.producer_id_expiration_check_interval_ms,
            state.replica_manager.expire_producers,
        )
        every(
            "delegation token expiration",
            lambda: config.delegation_token_expiry_check_interval_ms,
            state.security.delegation_tokens.sweep,
        )
        request_log = RequestLog(self.apis, self._ports.stopwatch)
        request_log.follow_level()
        every("request log", lambda: LOG_LEVEL_CHECK_MS, request_log.follow_level)
        every("offset expiration", lambda: config.offsets_retention_check_interval_ms, state.groups.expire)
        transactions = state.transactions.coordinator
        every(
            "transaction abort",
            lambda: config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            transactions.abort_timed_out,
        )
        every(
            "transactional id expiration",
            lambda: config.transaction_remove_expired_transaction_cleanup_interval_ms,
            transactions.expire,
        )

    async def _retry_replicas(self) -> None:
        """Make the logs for which there was no room; not while a directory is offline, as they may be there."""
        logs = self.state.log_manager
        if len(logs.held.online_dirs) == len(logs.dirs):
            await self.state.controller.retry_replicas(self.state.broker_id, lost=logs.held.offline)
            if self._links is not None:
                await self._links.control.retry_replicas()

    async def _checkpoint(self, name: str) -> None:
        await self.state.replica_manager.run_on_lanes(self.state.log_manager.checkpoint_tasks(name))

    def _partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """A log directory failed: let the controller say so to everybody."""
        self.state.controller.replicas_failed_at(self.state.broker_id, partitions)
