"""The composition root: builds every part of a broker, starts them in order and stops them in reverse.

Kafka's BrokerServer. It connects the components and makes no decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..common.error_description import describe_error
from ..common.room_logger import room_logger
from ..protocol.errors import ErrorCode, KafkaError
from ..storage.filesystem import parent_of
from ..storage.log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from ..storage.reserve import Reserve
from .apis.kafka_apis import KafkaApis
from .apis.request_log import RequestLog
from .backup import BackupRoutes
from .broker_state import BrokerState, services
from .cleaning.cleaner_http import CleanerRoutes
from .cleaning.log_cleaner import LogCleaner
from .cluster_member import ClusterMember, choose_broker_id, strays_of_cluster, zookeeper_session
from .config.dynamic_config import DynamicConfig
from .config.zookeeper import zookeeper_settings
from .controller.admin_manager import TopicCreation
from .controller.adoption import FoundReplica, strays
from .controller.controller_channel_manager import LocalControllerChannel
from .controller.kafka_controller import KafkaController
from .controller.kraft_adoption import KraftAdoption
from .coordinator.group.group_coordinator import GroupCoordinator
from .coordinator.group.partition_metadata_client import PartitionMetadataClient
from .coordinator.share.share_coordinator import ShareCoordinator
from .coordinator.transaction.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from .coordinator.transaction.transaction_coordinator import TransactionCoordinator
from .coordinator.transaction.transaction_marker_channel_manager import MarkerWriter
from .metadata.acl_store import AclStore
from .metadata.cluster_features import SHARE_VERSION, TRANSACTION_VERSION, ClusterFeatures
from .metadata.cluster_store import ClusterStore
from .metadata.config_store import ConfigStore
from .metadata.metadata_cache import MetadataCache
from .metadata.metadata_sources import MetadataSources
from .metadata.metadata_store import STORE_LANE
from .metadata.metadata_stores import MetadataStores
from .metadata.producer_id_manager import ZkProducerIdManager
from .metadata.token_store import TokenStore
from .metadata.topic_store import TopicStore
from .metadata.znodes import TRANSACTION_LEVELS, BrokerEndpoint, BrokerInfo
from .network.socket_server import SocketServer
from .quotas.quota_managers import QuotaManagers
from .quotas.replication_quota_manager import moving_quota
from .quotas.request_quota_usage import CONNECTION
from .quotas.stored_quotas import stored_quotas
from .replication.disk_space_monitor import DiskSpaceMonitor, MetadataDirectory
from .replication.fetch_session import FetchSessionCache
from .replication.inter_broker_versions import has_topic_ids
from .replication.log_directories import LogDirectories
from .replication.replica_alter_log_dirs_manager import ReplicaAlterLogDirsManager
from .replication.replica_manager import ReplicaManager
from .runtime.health import HealthServer
from .runtime.loop_sharing import SlicedWork, TurnQueue
from .runtime.ports import no_users
from .runtime.scheduler import Scheduler
from .runtime.write_queue import WriteQueue
from .security.broker_security import BrokerSecurity
from .share.persister import Persister
from .share.share_group_config_provider import ShareGroupConfigProvider
from .share.share_group_dlq_manager import ShareGroupDLQManager
from .share.share_group_metrics import ShareGroupMetrics
from .share.share_partition_manager import SharePartitionManager

if TYPE_CHECKING:
    from ..protocol.topic_partition import TopicPartition
    from .config.broker_config import BrokerConfig
    from .config.listeners import ListenerConfig
    from .controller.controller_client import ControllerClient
    from .kraft.kraft_member import KRaftMember
    from .metadata.metadata_store import MetadataStore
    from .metrics.metrics_http import MetricsServer
    from .runtime.ports import Ports
    from .security.authorizer import Authorizer
    from .telemetry.client_metrics_manager import ClientMetricsManager

logger = room_logger("broker")

T = TypeVar("T")

FLUSH_CHECK_MS = 1000
"""Interval of the checks of `flush.ms`."""
RESERVE_CHECK_MS = 10_000
"""Interval in which the reserved space on each disk is restored."""
SPACE_CHECK_MS = 1000
"""Interval in which the space of full disks is measured; other disks are measured less often."""
DAY_MS = 86_400_000
"""Interval in which certificates that expire soon are logged."""
REPLICA_RETRY_MS = 10_000
"""Interval of the attempts to create a log that did not fit on the disk."""
DELETION_LANE = "#deletion"
"""The lane that deletes files: freeing the blocks of a large file takes long, and no append should wait for it."""
LOG_LEVEL_CHECK_MS = 1000
"""Interval of the checks of the request log's level."""
DELETION_CHECK_MS = 1000
"""Interval in which folders of deleted topics are removed after their delay."""


class BrokerServer:
    """One broker on one loop. `start` once, `stop` once; `failed` is set when it cannot continue."""

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
        """`open_store` opens the metadata store of a single broker, `join_store` a session with a cluster's store.

        The default of `join_store` follows from `zookeeper.connect`. `authorizer` replaces the configured one. Raises
        ConfigError for an invalid ZooKeeper configuration or an unsupported password encoder.
        """
        self.config = config
        self.failed = asyncio.Event()
        self._ports = ports
        self._sliced_work = SlicedWork(loop, ports.stopwatch)
        self._write_queue = WriteQueue(loop)
        self._loop = loop
        self._open_store = open_store or self._embedded_store
        zookeeper = zookeeper_settings(config)
        if join_store is None and zookeeper is not None:
            join_store = partial(zookeeper_session, zookeeper, loop, ports)
        self._join_store = join_store
        self._is_alone = join_store is None and not config.coordinator_addresses and not config.is_kraft
        self._authorizer = authorizer
        self._scheduler = Scheduler(loop)
        self._stops: list[Callable[[], Awaitable[object]]] = []
        self._dynamic_config = DynamicConfig(config, ports)
        self._directories = LogDirectories(config, ports, loop, self._dynamic_config)
        self._disk_space = DiskSpaceMonitor(
            self._directories.log_manager, config, ports, loop, metadata=self._metadata_directory()
        )
        self._state: BrokerState | None = None
        self._sockets: SocketServer | None = None
        self._apis: KafkaApis | None = None
        self._member: ClusterMember | KRaftMember | None = None
        self._kraft_adoption: KraftAdoption | None = None
        """Takes over the metadata that a KRaft quorum has left in a log directory; only a standalone broker has it."""
        self.failure: str | None = None
        """The reason why the broker cannot continue, other than failed log directories."""
        self.was_start_given_up = False
        """Whether `start` has ended because of `give_up_start`."""
        self._give_up_start = asyncio.Event()
        self._stopping = False
        self.health: HealthServer | None = None
        """Readiness probes and the cleaner's status over HTTP; None without `health.port`."""
        self.metrics: MetricsServer | None = None
        """Metrics over HTTP; None without `metrics.listeners`."""
        if config.health_port is not None:
            routes = (
                CleanerRoutes(lambda: self.state.cleaner).routes() | BackupRoutes(lambda: self.state, loop).routes()
            )
            self.health = HealthServer("127.0.0.1", config.health_port, self._health, loop, routes)

    @property
    def state(self) -> BrokerState:
        """The components, once started."""
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
        """The dispatcher of requests, once started."""
        if self._apis is None:
            raise RuntimeError("the broker is not started")
        return self._apis

    def _metadata_directory(self) -> MetadataDirectory | None:
        """Return the directory of the embedded metadata store, if the broker has one."""
        if self.config.is_kraft or self._join_store is not None:
            return None
        path = parent_of(self.config.metadata_store_path)
        return MetadataDirectory(path, STORE_LANE, self._directories.store_reserve)

    # -- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the logs, elect leaders, accept connections. When this returns clients are served.

        Raises OSError (a port or a directory is not available), StorageError, ConfigError, KafkaError. After a failure
        `stop` releases all resources. In a KRaft cluster the start waits for the controllers, without a time limit, and
        then raises KafkaError BROKER_NOT_AVAILABLE after `give_up_start`, or when the broker has failed.
        """
        self._directories.open()
        self._stops.append(self._shut_down_logs)
        await self._directories.use_reserves(Reserve.give_up)
        sources = await (self._unless_given_up(self._join_quorum()) if self.config.is_kraft else self._open_tree())
        await self._dynamic_config.load(sources.config_store, sources.broker_id)
        quotas = await self._load_quotas(sources.config_store)
        security = BrokerSecurity(
            self.config,
            self._ports,
            self._loop,
            acl_store=sources.acl_store,
            token_store=sources.token_store,
            config_store=sources.config_store,
            authorizer=self._authorizer,
        )
        self._stops.append(security.close)
        await security.start()
        security.warn_of_expiring_certificates()
        self._dynamic_config.on_validate(security.validate_reconfiguration)
        self._dynamic_config.on_broker_change(security.reload)
        await self._directories.load(sources.find_strays, sources.known_topics)
        self._state = self._build_state(sources, quotas, security)
        await self._serve(self._state)

    def give_up_start(self) -> None:
        """End a `start` that waits for controllers, now or later. A start that waits for a disk continues."""
        self._give_up_start.set()

    async def _unless_given_up(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work that may wait for controllers, until the start is given up or the broker fails."""
        task = self._loop.create_task(work)
        ends = [self._loop.create_task(event.wait()) for event in (self._give_up_start, self.failed)]
        try:
            await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            for one in (task, *ends):
                one.cancel()
            await asyncio.gather(task, *ends, return_exceptions=True)
        if self.failed.is_set():
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, self.failure or "every log directory has failed")
        self.was_start_given_up = True
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the start was cancelled")

    async def _join_quorum(self) -> MetadataSources:
        """Read the metadata of the KRaft cluster."""
        from .kraft.kraft_member import KRaftMember  # other brokers do not load it

        self._member = member = KRaftMember(
            self.config,
            self._ports,
            self._loop,
            self._directories.log_manager,
            on_fatal=self._fail,
            on_shutdown_required=self._directory_failure_not_reported,
        )
        self._stops.append(member.close)
        return await member.start()

    def _fail(self, error: BaseException) -> None:
        """End the broker because of an error that has been logged."""
        self.failure = describe_error(error)
        self.failed.set()

    def _directory_failure_not_reported(self) -> None:
        self.failure = "no controller has confirmed the failure of a log directory"
        self.failed.set()

    async def _open_tree(self) -> MetadataSources:
        """Open the metadata tree and read the identity and the topics of the cluster from it."""
        ports, log_manager = self._ports, self._directories.log_manager
        stored_id, stored_cluster_id = log_manager.stored_identity()
        store = self._open_store() if self._join_store is None else await self._join_store()
        self._stops.append(store.close)
        await self._serve_tree(store)
        cluster_store = ClusterStore(store, now_ms=ports.now_ms, token_bytes=ports.token_bytes)
        topic_store = TopicStore(store, token_bytes=ports.token_bytes)
        config_store = ConfigStore(store, now_ms=ports.now_ms)
        if self._is_alone:
            broker_id, adopt = self._choose_broker_id(stored_id), strays
            log_dirs = [one.path for one in log_manager.held.online_dirs]
            adoption = KraftAdoption(store, self._dynamic_config, ports.filesystem, ports.work, log_dirs)
            self._kraft_adoption = adoption
            # A store with a cluster id is not new.
            await adoption.begin()
            cluster_id = await cluster_store.prepare(stored_cluster_id)
            await adoption.adopt(broker_id)
        else:
            broker_id, adopt = await choose_broker_id(self.config, stored_id, cluster_store), strays_of_cluster
            cluster_id = await cluster_store.prepare()
        log_manager.write_identity(broker_id, cluster_id, version=1 if self._is_alone else 0)
        topics = await topic_store.find_topics()
        by_name, unreadable = topics.by_name(), topics.unreadable
        features = ClusterFeatures(store, cluster_store)
        self._stops.append(features.close)
        await features.start()
        return MetadataSources(
            broker_id=broker_id,
            cluster_id=cluster_id,
            stores=MetadataStores(store, cluster_store, topic_store, config_store),
            config_store=config_store,
            acl_store=AclStore(store, now_ms=ports.now_ms),
            token_store=TokenStore(store, now_ms=ports.now_ms),
            features=features,
            find_strays=partial(adopt, topics=by_name, unreadable=unreadable),
            known_topics=by_name.keys() | unreadable,
        )

    def _choose_broker_id(self, stored_id: int | None) -> int:
        """Return the configured id, else the id in the log directories."""
        if self.config.configured_broker_id is not None:
            return self.config.configured_broker_id
        return self.config.broker_id if stored_id is None else stored_id

    async def _load_quotas(self, config_store: ConfigStore) -> QuotaManagers:
        quotas = QuotaManagers(self.config, self._loop, self._ports.stopwatch)
        async for entity, limits in stored_quotas(config_store):
            await quotas.changed(entity, limits)
        return quotas

    def _build_state(self, sources: MetadataSources, quotas: QuotaManagers, security: BrokerSecurity) -> BrokerState:
        """Build all components that handlers use, without starting them."""
        config, ports, turn_queue = self.config, self._ports, TurnQueue(self._loop, self._ports.collect_new)
        broker_id, features, dynamic_config = sources.broker_id, sources.features, self._dynamic_config
        log_manager = self._directories.log_manager
        metadata, replica_manager, cleaner, controller = self._topic_parts(sources, security, quotas)
        member = self._member
        producer_ids = ZkProducerIdManager(sources.tree.store, broker_id) if member is None else member.producer_ids

        def feature_level(name: str) -> int:
            # Share groups identify topics by their ids.
            return 0 if name == SHARE_VERSION and not has_topic_ids(config) else features.level(name)

        share_version = partial(feature_level, SHARE_VERSION)

        share_coordinator = ShareCoordinator(
            config=config,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            ports=ports,
            loop=self._loop,
            sliced_work=self._sliced_work,
        )
        persister = Persister(
            share_coordinator,
            metadata,
            self._loop,
            ports.random,
            broker_id=broker_id,
            send=None if member is None else member.share_state_connections.send_request,
        )
        group_coordinator = GroupCoordinator(
            config=config,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            dynamic_config=dynamic_config,
            ports=ports,
            loop=self._loop,
            turn_queue=turn_queue,
            sliced_work=self._sliced_work,
            persister=persister,
            feature_level=feature_level,
        )
        partition_metadata_client = PartitionMetadataClient(
            replica_manager,
            metadata,
            self._sliced_work,
            broker_id=broker_id,
            send=None if member is None else member.share_state_connections.send_request,
        )
        marker_writer = MarkerWriter(
            replica_manager, group_coordinator, ports.now_ms, lambda: config.request_timeout_ms, self._sliced_work
        )
        transaction_coordinator = TransactionCoordinator(
            config=config,
            broker_id=broker_id,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            producer_ids=producer_ids,
            marker_writer=marker_writer,
            transaction_version=partial(features.level, TRANSACTION_VERSION),
            ports=ports,
            loop=self._loop,
            send_markers=None if member is None else member.marker_connections.send_request,
        )
        add_partitions_to_txn_manager = AddPartitionsToTxnManager(
            transaction_coordinator,
            replica_manager,
            metadata,
            self._loop,
            broker_id=broker_id,
            send=None if member is None else member.transaction_connections.send_request,
        )
        moving = moving_quota(config, self._loop.time)
        share_partition_manager = self._share_partitions(
            replica_manager, metadata, persister, dynamic_config, controller, share_version
        )
        features.on_change(share_partition_manager.on_share_version_change)
        return BrokerState(
            broker_id=broker_id,
            cluster_id=sources.cluster_id,
            broker_epoch=-1,
            config=config,
            ports=ports,
            stores=sources.stores,
            config_store=sources.config_store,
            dynamic_config=dynamic_config,
            metadata=metadata,
            controller_client=controller,
            orders=member.request_handler if isinstance(member, ClusterMember) else None,
            forwarding_manager=None if member is None else member.forwarding_manager,
            producer_ids=producer_ids,
            features=features,
            log_manager=log_manager,
            replica_manager=replica_manager,
            cleaner=cleaner,
            replica_alter_log_dirs_manager=ReplicaAlterLogDirsManager(
                log_manager, replica_manager, cleaner.paused, ports, self._loop, quota=moving
            ),
            fetch_sessions=FetchSessionCache(config.max_incremental_fetch_session_cache_slots, ports.random),
            turn_queue=turn_queue,
            sliced_work=self._sliced_work,
            group_coordinator=group_coordinator,
            partition_metadata_client=partition_metadata_client,
            transaction_coordinator=transaction_coordinator,
            marker_writer=marker_writer,
            add_partitions_to_txn_manager=add_partitions_to_txn_manager,
            share_coordinator=share_coordinator,
            persister=persister,
            share_partition_manager=share_partition_manager,
            quotas=quotas,
            security=security,
            telemetry=self._telemetry(dynamic_config),
            disk_space=self._disk_space,
        )

    def _share_partitions(
        self,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        persister: Persister,
        dynamic_config: DynamicConfig,
        controller: ControllerClient,
        share_version: Callable[[], int],
    ) -> SharePartitionManager:
        """Build the data path of share groups."""
        config, ports, metrics = self.config, self._ports, ShareGroupMetrics()
        config_provider = ShareGroupConfigProvider(dynamic_config, share_version)
        dlq_manager = ShareGroupDLQManager(
            config=config,
            dynamic_config=dynamic_config,
            config_provider=config_provider,
            metadata=metadata,
            replica_manager=replica_manager,
            controller=controller,
            metrics=metrics,
            work=ports.work,
            chance=ports.random,
            now_ms=ports.now_ms,
            send=None if self._member is None else self._member.share_state_connections.send_request,
        )
        return SharePartitionManager(
            replica_manager=replica_manager,
            persister=persister,
            config_provider=config_provider,
            dlq_manager=dlq_manager,
            metrics=metrics,
            max_share_sessions=config.group_share_max_share_sessions,
            share_version=share_version,
            loop=self._loop,
            sliced_work=self._sliced_work,
            now_ms=ports.now_ms,
        )

    def _telemetry(self, dynamic_config: DynamicConfig) -> ClientMetricsManager | None:
        """Return the receiver of client metrics; None if the metrics could not be exported."""
        if not self.config.is_measured:
            return None
        from .telemetry.client_metrics_manager import ClientMetricsManager, can_be_read

        if not can_be_read():
            return None
        ports = self._ports
        return ClientMetricsManager(
            self.config, dynamic_config, now=self._loop.time, token_bytes=ports.token_bytes, work=ports.work
        )

    def _topic_parts(
        self, sources: MetadataSources, security: BrokerSecurity, quotas: QuotaManagers
    ) -> tuple[MetadataCache, ReplicaManager, LogCleaner, ControllerClient]:
        """Build the components that hold topics: metadata cache, replica manager, log cleaner and controller."""
        dynamic_config, log_manager = self._dynamic_config, self._directories.log_manager
        metadata = MetadataCache(sources.cluster_id)
        replica_manager = ReplicaManager(
            log_manager=log_manager,
            metadata=metadata,
            topic_log_config=dynamic_config.topic_log_config,
            ports=self._ports,
            sliced_work=self._sliced_work,
            write_queue=self._write_queue,
            loop=self._loop,
            acks_all_on_disk=self.config.acks_all_durability == "disk",
            is_verification_needed=lambda: self.config.transaction_partition_verification_enable,
            on_partitions_lost=self._partitions_lost,
            on_all_failed=self.failed.set,
            on_no_space=self._disk_space.on_no_space,
        )
        cleaner = LogCleaner(log_manager, replica_manager, config=self.config, ports=self._ports, loop=self._loop)
        dynamic_config.on_topic_change(replica_manager.topic_config_changed)
        dynamic_config.on_topic_change(lambda _: cleaner.settings_changed())
        dynamic_config.on_broker_change(cleaner.settings_changed)
        if self._member is not None:
            assert not isinstance(self._member, ClusterMember), "only a member of a KRaft cluster is built before"
            self._member.build(
                dynamic_config=dynamic_config,
                metadata=metadata,
                replica_manager=replica_manager,
                cleaner=cleaner,
                security=security,
                quotas=quotas,
            )
            return metadata, replica_manager, cleaner, self._member.controller
        if not self._is_alone:
            self._member = ClusterMember(
                sources.broker_id,
                sources.tree,
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
            return metadata, replica_manager, cleaner, self._member.controller
        controller = KafkaController(
            broker_id=sources.broker_id,
            stores=sources.tree,
            metadata=metadata,
            channel=LocalControllerChannel(sources.broker_id, replica_manager, cleaner.deleting),
            config=self.config,
            dynamic_config=dynamic_config,
            chance=self._ports.random,
        )
        return metadata, replica_manager, cleaner, controller

    async def _serve(self, state: BrokerState) -> None:
        """Bind, register, elect, accept."""
        apis = self._apis = KafkaApis(
            services(state),
            self._loop,
            quotas=state.quotas,
            turn_queue=state.turn_queue,
            authorizer=state.security.authorizer,
            memory_limit=self._ports.memory_limit,
        )
        sockets = self._sockets = SocketServer(
            self.config,
            apis.handle,
            self._loop,
            self._ports.machine_name,
            open_files=self._ports.open_files,
            connection_quota=state.quotas.connections,
            listener_security=state.security.listener_security,
            work=self._ports.work,
            refuse=apis.refuse,
            memory_limit=self._ports.memory_limit,
            allocate=self._ports.allocate,
            release_memory=self._ports.release_memory,
            handle_together=apis.handle_together,
            write_queue=self._write_queue,
            on_throttled=partial(state.quotas.throttled, CONNECTION),
        )
        await sockets.bind()
        self._stops += [state.controller_client.close, sockets.close, apis.close]
        registration = BrokerInfo(
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
        if self._member is None:
            await self._serve_alone(state, registration)
        else:
            self._stops.append(self._member.close)
            joining = self._member.join(state, registration, self._scheduler)
            await (self._unless_given_up(joining) if self.config.is_kraft else joining)
        state.group_coordinator.start()
        state.transaction_coordinator.start()
        state.share_coordinator.start()
        state.replica_alter_log_dirs_manager.start()
        self._stops += [
            state.group_coordinator.close,
            state.transaction_coordinator.close,
            state.add_partitions_to_txn_manager.close,
            state.share_coordinator.close,
            state.persister.close,
            state.share_partition_manager.close,
            state.replica_alter_log_dirs_manager.close,
        ]
        # Before clients can use the space on the disk that the start has left.
        await self._directories.use_reserves(Reserve.fill)
        await self._disk_space.check()
        await sockets.start()
        await self._serve_operators(state)
        self._schedule(state)
        self._stops.append(self._scheduler.close)
        state.cleaner.start()
        self._stops.append(state.cleaner.close)

    async def _serve_operators(self, state: BrokerState) -> None:
        """Open the HTTP endpoints for operators."""
        if self.health is not None:
            await self.health.start()
            self._stops.append(self.health.close)
            # For port 0 the setting reports the port that was chosen.
            self.config.settle("health.port", str(self.health.port))
        if self.config.is_measured:
            from .metrics.metrics_http import MetricsServer

            self.metrics = MetricsServer(self.config, self._loop, self._health, self._ports.machine_name)
            self._stops.append(self.metrics.close)
            await self.metrics.start(state, self.apis, self.sockets)

    async def _serve_alone(self, state: BrokerState, registration: BrokerInfo) -> None:
        state.broker_epoch = (await state.cluster_store.register_broker(registration)).broker_epoch
        found = state.log_manager.identities()
        adoption = self._kraft_adoption
        assert adoption is not None, "a broker without other brokers has opened its metadata tree"
        replicas = {key: FoundReplica(*identity) for key, identity in found.items()}
        await state.controller.start_alone(replicas, adoption.topics)
        await adoption.finish()

    async def stop(self, *, leave: bool = True) -> bool:
        """Kafka's clean shutdown: no new requests, waiting ones answered, logs flushed and marked clean.

        A member of a cluster moves its leaders to other brokers first, unless `leave` is False. A broker that cannot
        continue does not: it would lead, for minutes, partitions that have other leaders in metadata that it cannot
        follow. Return whether every component stopped cleanly; the log names the others.
        """
        self._stopping = True
        is_clean = True
        if self._member is not None and leave and not self.failed.is_set():
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
                is_clean = False
        self._ports.work.close()
        return is_clean

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
        """Return whether the broker is ready, and details for operators."""
        state = self._state
        ready = state is not None and not self._stopping and not self.failed.is_set()
        broker_id = self.config.broker_id if state is None else state.broker_id
        # The broker serves the other directories, so it is ready; monitoring must see the failed one.
        offline = {
            d.path: describe_error(d.failure.cause) for d in self._directories.log_manager.dirs if d.failure is not None
        }
        return ready, {
            "broker.id": broker_id,
            "listeners": [str(one) for one in self.listeners],
            "offline.log.dirs": offline,
            # Reads continue, and a restart frees no space, so the broker is ready.
            "full.log.dirs": dict(self._disk_space.full),
        }

    def _embedded_store(self) -> MetadataStore:
        from .metadata.embedded_store import EmbeddedStore  # brokers of an ensemble do not load SQLite

        store = EmbeddedStore.open(
            self.config.metadata_store_path,
            now_ms=self._ports.now_ms,
            work=self._ports.work,
            durable=self.config.acks_all_durability == "disk",
            lasting=self._ports.is_lasting,
            reserve=self._directories.store_reserve,
            keep_sessions=bool(self.config.coordinator_addresses),
        )
        store.request_processor.on_full = self._disk_space.on_store_full
        return store

    async def _serve_tree(self, store: MetadataStore) -> None:
        """Serve this broker's store to other brokers, if configured. Raises OSError."""
        addresses = self.config.coordinator_addresses
        if not addresses:
            return
        from .metadata.embedded_store import EmbeddedStore
        from .metadata.served.tree_server import TreeServer

        if not isinstance(store, EmbeddedStore):
            return
        server = TreeServer(
            store.request_processor,
            addresses,
            self._loop,
            token_bytes=self._ports.token_bytes,
            open_files=self._ports.open_files,
            is_trusted=self._ports.is_own_user if self.config.coordinator_owner_only else no_users,
            memory_limit=self._ports.memory_limit,
        )
        self._stops.append(server.close)
        await server.start()
        # For port 0 the setting reports the port that was chosen.
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
            lambda: state.replica_manager.delete_old_segments(list(logs.logs)),
            delay_ms=delay_ms,
        )
        every(
            "flush",
            lambda: min(config.log_flush_scheduler_interval_ms, FLUSH_CHECK_MS),
            state.replica_manager.flush_overdue,
        )
        every("deletion", lambda: DELETION_CHECK_MS, lambda: run_on_lanes(logs.deletion_tasks(), DELETION_LANE))
        every("reserve", lambda: RESERVE_CHECK_MS, lambda: self._directories.use_reserves(Reserve.fill))
        every("disk space", lambda: SPACE_CHECK_MS, self._disk_space.check)
        every("replicas without room", lambda: REPLICA_RETRY_MS, self._retry_replicas)
        checkpoints: tuple[tuple[str, Callable[[], int]], ...] = (
            (HIGH_WATERMARK_CHECKPOINT, lambda: config.replica_high_watermark_checkpoint_interval_ms),
            (RECOVERY_POINT_CHECKPOINT, lambda: config.log_flush_offset_checkpoint_interval_ms),
            (LOG_START_OFFSET_CHECKPOINT, lambda: config.log_flush_start_offset_checkpoint_interval_ms),
        )
        for name, interval_ms in checkpoints:
            every(name, interval_ms, partial(state.replica_manager.write_checkpoint, name))
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
        every("expiry of certificates", lambda: DAY_MS, state.security.warn_of_expiring_certificates)
        every(
            "offset expiration",
            lambda: config.offsets_retention_check_interval_ms,
            state.group_coordinator.cleanup_expired_offsets,
        )
        transactions = state.transaction_coordinator
        every(
            "transaction abort",
            lambda: config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            transactions.abort_timed_out_transactions,
        )
        every(
            "transactional id expiration",
            lambda: config.transaction_remove_expired_transaction_cleanup_interval_ms,
            transactions.state_manager.remove_expired_transactional_ids,
        )

        every(
            "share-group state pruning",
            lambda: config.share_coordinator_state_topic_prune_interval_ms,
            state.share_coordinator.prune_records,
        )
        every(
            "share-group state snapshots",
            lambda: config.share_coordinator_cold_partition_snapshot_interval_ms,
            state.share_coordinator.snapshot_cold_partitions,
        )

    async def _retry_replicas(self) -> None:
        """Create the logs that did not fit on the disk, unless they may be in a directory that is offline."""
        logs = self.state.log_manager
        if len(logs.held.online_dirs) == len(logs.dirs):
            await self.state.controller_client.retry_replicas(self.state.broker_id, lost=logs.held.offline)
        elif not self.config.is_kraft:
            return
        # The metadata of a KRaft cluster have the directory of each replica.
        if self._member is not None:
            await self._member.retry_replicas()

    def _partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Report partitions in a failed log directory to the controller."""
        self.state.controller_client.on_replicas_offline(self.state.broker_id, partitions)
