"""A broker's part in a KRaft cluster: its metadata, its registration, and its connections to controllers and brokers.

Kafka's SharedServer and BrokerServer. The controllers are Apache Kafka's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...common.room_logger import room_logger
from ...common.uuid_text import new_uuid
from ...protocol.errors import KafkaError, code_of
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from ...protocol.receive_buffer import FrameMemory
from ...protocol.schema import UNBOUNDED
from ...storage.errors import StorageError
from ..cluster_member import strays_of_cluster
from ..controller.alter_partition_manager import DefaultAlterPartitionManager
from ..controller.forwarding_manager import ForwardingManager
from ..image.metadata_loader import MetadataLoader
from ..metadata.cluster_features import FEATURES
from ..metadata.metadata_sources import MetadataSources
from ..metadata.producer_id_manager import ProducerIdManager
from ..network.broker_connections import BrokerConnections
from ..raft.broker_lifecycle_manager import AdvertisedListener, BrokerLifecycleManager
from ..raft.broker_registration_tracker import BrokerRegistrationTracker
from ..raft.controller_connections import ControllerConnections
from ..raft.kafka_raft_client import KafkaRaftClient
from ..raft.kafka_raft_log import KafkaRaftLog
from ..raft.node_to_controller_channel_manager import NodeToControllerChannelManager
from ..raft.observer_state import MAX_BACKOFF_MS
from ..raft.snapshot_generator import SnapshotGenerator
from ..replication.replication import KEPT_FRAMES, Replication
from ..security.inter_broker_security import InterBrokerSecurity
from .assignments_manager import AssignmentsManager
from .broker_metadata_publisher import BrokerMetadataPublisher, FirstImage
from .image_config_store import ImageConfigStore
from .image_features import METADATA_VERSION, ImageFeatures
from .image_token_store import ImageTokenStore
from .image_topics import SECURITY_PROTOCOLS, local_topics
from .kraft_controller_client import KRaftControllerClient
from .published_image import PublishedImage
from .quorum_settings import (
    controller_listener,
    lifecycle_config,
    metadata_log_config,
    metadata_log_dir,
    quorum_config,
    session_timeout_ms,
)

if TYPE_CHECKING:
    from uuid import UUID

    from ...storage.log_manager import LogManager
    from ..broker_state import BrokerState
    from ..cleaning.log_cleaner import LogCleaner
    from ..config.broker_config import BrokerConfig
    from ..config.dynamic_config import DynamicConfig
    from ..metadata.metadata_cache import MetadataCache
    from ..metadata.znodes import BrokerInfo
    from ..network.broker_connections import Endpoint
    from ..quotas.quota_managers import QuotaManagers
    from ..replication.replica_manager import ReplicaManager
    from ..runtime.ports import Ports
    from ..runtime.scheduler import Scheduler
    from ..security.broker_security import BrokerSecurity

logger = room_logger("cluster")

CONTROLLERS = 2
"""The endpoint type of controllers in DescribeCluster (KIP-919)."""
SINCE_ENDPOINT_TYPE = 1
INTER_BROKER_PROTOCOL = "3.9-IV0"
"""The versions of requests between brokers: every Kafka broker of a KRaft cluster with Kafka 4 supports them."""
LOG_DIRS_CHECK_MS = 1000
"""Interval in which the log directories of replicas are compared with the metadata."""
SINCE_CORDONED_LOG_DIRS = 30
"""metadata.version 4.3-IV0, the first level at which registrations contain cordoned log directories (KIP-1066)."""
RETRY_TIMEOUT_MS = 60_000
"""Kafka's timeout of requests to the controller with all their attempts."""


class KRaftMember:
    """One broker's part in a KRaft cluster, from its start to its stop. `BrokerServer` owns it; loop thread.

    `start` reads the metadata, `build` makes the parts that replicate, `join` registers the broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        log_manager: LogManager,
        *,
        on_fatal: Callable[[BaseException], None],
        on_shutdown_required: Callable[[], None],
    ) -> None:
        """`on_fatal` is called for an error after which the metadata cannot be followed.

        `on_shutdown_required` is called if the failure of a log directory cannot be reported in time. Raises
        ConfigError.
        """
        broker_id = config.configured_broker_id
        if broker_id is None:
            broker_id = log_manager.stored_identity()[0]
        self._broker_id = config.broker_id if broker_id is None else broker_id
        self._config = config
        self._ports = ports
        self._loop = loop
        self._log_manager = log_manager
        self._on_fatal = on_fatal
        self._on_shutdown_required = on_shutdown_required
        self._quorum_config = quorum_config(config)
        self._log_dir = metadata_log_dir(config)
        listener = controller_listener(config)
        self._to_controllers = InterBrokerSecurity(config, listener, mechanism_key="sasl.mechanism.controller.protocol")
        request_timeout_ms = self._quorum_config.request_timeout_ms
        # Separate connections: a slow request must delay neither heartbeats nor the metadata.
        self._for_raft = self._controllers(request_timeout_ms)
        self._raft: KafkaRaftClient | None = None
        self._channel = self._channel_manager(config.request_timeout_ms)
        self._forwarding_channel = self._channel_manager(config.request_timeout_ms)
        self.forwarding_manager = ForwardingManager(
            self._forwarding_channel.send_request,
            lambda: self._forwarding_channel.controller_api_versions,
            ports.work,
        )
        self._published = PublishedImage()
        self._loader = MetadataLoader(
            # That of the leader: the folders of topics that are missing in the image of an incomplete replica, for
            # example after a power failure, would be put aside, and their partitions would begin empty.
            high_watermark=lambda: None if self._raft is None else self._raft.leader_high_watermark,
            lock=asyncio.Lock(),
        )
        self._features = ImageFeatures(self._published)
        self._config_store = ImageConfigStore(self._published)
        self._snapshot_generator: SnapshotGenerator | None = None
        self._lifecycle: BrokerLifecycleManager | None = None
        self._publisher: BrokerMetadataPublisher | None = None
        self._directory_ids: dict[str, UUID] = {}
        self._reported_failures: set[UUID] = set()
        self._reported_cordoned: list[UUID] = []
        self._cluster_id = ""
        self._is_closed = False
        self.controller = KRaftControllerClient(
            config,
            self._channel.send_request,
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            report_offline_replicas=self._report_failed_directories,
        )
        self.producer_ids = ProducerIdManager(self.controller.allocate_producer_ids)

    def _controllers(self, timeout_ms: int) -> ControllerConnections:
        return ControllerConnections(
            self._broker_id, self._ports.random, timeout_ms=timeout_ms, outgoing=self._to_controllers
        )

    def _channel_manager(
        self, timeout_ms: int, retry_timeout_ms: int = RETRY_TIMEOUT_MS
    ) -> NodeToControllerChannelManager:
        return NodeToControllerChannelManager(
            lambda: None if self._raft is None else self._raft.leader_endpoint,
            self._controllers(timeout_ms),
            retry_timeout_ms=retry_timeout_ms,
        )

    def _broker_epoch(self) -> int:
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    # -- metadata --------------------------------------------------------------------------------------------------

    async def start(self) -> MetadataSources:
        """Read the metadata of the cluster up to the present, and return it.

        Log directories without an identity become part of the cluster whose controllers are configured. Raises OSError,
        StorageError, KafkaError.
        """
        _, cluster_id = self._log_manager.stored_identity()
        self._cluster_id = cluster_id or await self._find_cluster_id()
        self._log_manager.write_identity(self._broker_id, self._cluster_id)
        self._directory_ids = self._log_manager.directory_ids()
        if self._log_dir not in self._directory_ids:
            failure = next(one.failure for one in self._log_manager.dirs if one.path == self._log_dir)
            raise StorageError(f"the log directory with the metadata log (metadata.log.dir) has failed: {failure}")
        self._raft = KafkaRaftClient(
            node_id=self._broker_id,
            cluster_id=self._cluster_id,
            directory_id=self._directory_ids[self._log_dir],
            config=self._quorum_config,
            open_log=self._open_metadata_log,
            send_request=self._for_raft.send_request,
            work=self._ports.work,
            loop=self._loop,
            rng=self._ports.random,
            now_ms=self._ports.now_ms,
            on_fatal=self._on_fatal,
        )
        first = FirstImage(self._published)
        self._snapshot_generator = SnapshotGenerator(
            self._raft,
            self._loop,
            max_record_bytes=self._config.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=self._config.metadata_log_max_snapshot_interval_ms,
            on_fatal=self._on_fatal,
        )
        await self._loader.install_publishers(first, self._snapshot_generator)
        await self._raft.start()
        self._raft.register(self._loader)
        await first.has_published.wait()
        topics = local_topics(self._published.image, self._broker_id)
        return MetadataSources(
            broker_id=self._broker_id,
            cluster_id=self._cluster_id,
            stores=None,
            config_store=self._config_store,
            acl_store=None,
            token_store=ImageTokenStore(self._published),
            features=self._features,
            find_strays=partial(strays_of_cluster, topics=topics),
            known_topics=self._published.image.topics.ids.keys(),
        )

    def _open_metadata_log(self) -> KafkaRaftLog:
        return KafkaRaftLog.open(
            self._log_dir,
            config=metadata_log_config(self._config),
            fs=self._ports.filesystem,
            now_ms=self._ports.now_ms,
            rng=self._ports.random,
        )

    async def _find_cluster_id(self) -> str:
        """Return the id of the cluster of the configured controllers, as soon as one of them responds."""
        servers, attempt = self._quorum_config.bootstrap_servers, 0
        reasons: dict[Endpoint, str] = {}
        while True:
            endpoint = servers[attempt % len(servers)]
            request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
            try:
                response: Any = await self._for_raft.send_request(endpoint, request, lowest=SINCE_ENDPOINT_TYPE)
            except KafkaError as error:
                logger.debug("the controller at %s:%d reports no cluster id: %s", *endpoint, error)
            else:
                if not response.error_code:
                    logger.info("the controller at %s:%d belongs to cluster %s", *endpoint, response.cluster_id)
                    return str(response.cluster_id)
                # MISMATCHED_ENDPOINT_TYPE: the address of a broker.
                reason = code_of(response.error_code).name
                if reasons.get(endpoint) != reason:
                    reasons[endpoint] = reason
                    logger.error("the controller at %s:%d refuses to report its cluster id: %s", *endpoint, reason)
            attempt += 1
            backoff_ms = self._quorum_config.retry_backoff_ms
            await asyncio.sleep(min(backoff_ms << min(attempt // len(servers), 10), MAX_BACKOFF_MS) / 1000)

    # -- parts -----------------------------------------------------------------------------------------------------

    def build(
        self,
        *,
        dynamic_config: DynamicConfig,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        cleaner: LogCleaner,
        security: BrokerSecurity,
        quotas: QuotaManagers,
    ) -> None:
        """Make the connections to other brokers, the replication and the publisher. Raises ConfigError."""
        config = self._config
        self._metadata = metadata
        # Clients send requests for the controller to any broker.
        metadata.controller_id = self._broker_id
        self._between_brokers = security.outgoing(config.inter_broker_listener)
        security.add_outgoing(self._to_controllers)
        self.marker_connections = self._connect(config.request_timeout_ms)
        self.transaction_connections = self._connect(config.request_timeout_ms)
        # Two connections: AddPartitionsToTxn must not delay markers, for which readers of committed records wait.
        self.share_state_connections = self._connect(config.request_timeout_ms)
        self._alter_partition_manager = DefaultAlterPartitionManager(
            self._broker_id, self._broker_epoch, self._send_to_controller, INTER_BROKER_PROTOCOL
        )
        self._replication = Replication(
            replica_manager,
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            config=config,
            metadata=metadata,
            isr_changes=self._alter_partition_manager,
            connect=partial(self._connect, memory=FrameMemory(KEPT_FRAMES)),
            paused=cleaner.paused,
            stopwatch=self._ports.stopwatch,
            loop=self._loop,
        )
        dynamic_config.on_broker_change(self._replication.fetchers.settings_changed)
        dynamic_config.on_broker_change(self._settings_changed)
        self._publisher = BrokerMetadataPublisher(
            self._broker_id,
            self._published,
            dynamic_config=dynamic_config,
            config_store=self._config_store,
            features=self._features,
            quotas=quotas,
            acls=security.acls,
            metadata=metadata,
            replica_manager=replica_manager,
            offline=self._log_manager.held.offline,
            lacks_log_dirs=lambda: len(self._log_manager.held.online_dirs) < len(self._log_manager.dirs),
            is_directory_online=lambda wanted: any(
                self._directory_ids[one.path] == wanted for one in self._log_manager.held.online_dirs
            ),
            pause_cleaning=cleaner.deleting,
        )

        self._assignments_manager = AssignmentsManager(
            self._broker_id,
            self._published,
            self._features,
            self._directory_ids,
            held=self._log_manager.held,
            broker_epoch=self._broker_epoch,
            send_request=self._send_to_controller,
        )

    async def _send_to_controller(self, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any:
        """Send a request of the broker; raise KafkaError for an error of the whole request, too."""
        response = await self._channel.send_request(request, lowest=lowest, highest=highest)
        if response.error_code:
            raise KafkaError(code_of(response.error_code))
        return response

    def _connect(self, timeout_ms: int, *, memory: FrameMemory | None = None) -> BrokerConnections:
        outgoing = self._between_brokers
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
        """Register the broker, apply all metadata, and wait until the controller has unfenced the broker.

        Raises KafkaError if the controller refuses the registration until `initial.broker.registration.timeout.ms`, and
        any exception that prevents the first publication of the metadata.
        """
        assert self._publisher is not None, "`build` was not called"
        # A request without a response must not delay the next heartbeat beyond the session.
        timeout_ms = session_timeout_ms(self._config) // 2
        self._lifecycle = lifecycle = BrokerLifecycleManager(
            node_id=self._broker_id,
            cluster_id=self._cluster_id,
            rack=self._config.broker_rack,
            # Without directories that have failed since the start: the controller must elect no leader in them.
            log_dirs=[self._directory_ids[one.path] for one in self._log_manager.held.online_dirs],
            incarnation_id=new_uuid(self._ports.token_bytes),
            config=lifecycle_config(self._config),
            loop=self._loop,
            cordoned_log_dirs=self._cordoned_log_dirs,
            on_registered=partial(setattr, state, "broker_epoch"),
            on_shutdown_required=self._on_shutdown_required,
        )
        lifecycle.start(
            self._applied_offset,
            self._channel_manager(timeout_ms, timeout_ms),
            [
                AdvertisedListener(
                    one.listener_name, one.host, one.port, SECURITY_PROTOCOLS.index(one.security_protocol)
                )
                for one in registration.endpoints
            ],
            {name: (feature.lowest, feature.highest) for name, feature in FEATURES.items()},
            self._log_manager.previous_broker_epoch(),
        )
        await self._loader.install_publishers(BrokerRegistrationTracker(self._broker_id, lifecycle.resend_registration))
        await lifecycle.initial_catch_up()
        await self._loader.install_publishers(self._publisher)
        await self._publisher.has_published.wait()
        if self._publisher.first_failure is not None:
            raise self._publisher.first_failure
        self._replication.schedule(scheduler)
        # Before the broker is unfenced: partitions whose only replica is in a directory that was replaced, or was
        # reported as lost, are led again when the broker is unfenced.
        await self._check_log_dirs()
        scheduler.every("log directories of replicas", lambda: LOG_DIRS_CHECK_MS, self._check_log_dirs)
        await lifecycle.ready_to_unfence()

    def _applied_offset(self) -> int:
        """Return the last offset for heartbeats.

        A broker that stops may leave when the others have reached the offset that moves its leaders: they must lead by
        then. Before the first publication the replica has to catch up only.
        """
        assert self._publisher is not None, "`build` was not called"
        if self._publisher.has_published.is_set():
            return self._publisher.applied_offset
        return self._loader.image.provenance.last_contained_offset

    async def _check_log_dirs(self) -> None:
        """Report failed log directories, also without replicas, and the directories of replicas."""
        self._report_failed_directories()
        await self._assignments_manager.check()

    async def leave(self) -> bool:
        """Move leaders to other brokers while clients are served (`controlled.shutdown.enable`).

        Return whether the controller has ended the shutdown. Kafka's BrokerLifecycleManager.beginControlledShutdown.
        """
        if self._lifecycle is None or not self._config.controlled_shutdown_enable:
            return False
        return await self._lifecycle.begin_controlled_shutdown()

    async def close(self) -> None:
        """Stop following the metadata and sending heartbeats, and close all connections. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._snapshot_generator is not None:
            await self._snapshot_generator.close()
        if self._raft is not None:
            # First: no change of the metadata may reach parts that are closed.
            await self._raft.close()
        if self._lifecycle is not None:
            await self._lifecycle.close()
        if self._publisher is not None:
            await self._publisher.close()
            await self._alter_partition_manager.close()
            await self._replication.close()
            for connections in (self.marker_connections, self.transaction_connections, self.share_state_connections):
                connections.close()
        for connected in (self._channel, self._forwarding_channel, self._for_raft):
            connected.close()

    def _cordoned_log_dirs(self) -> list[UUID] | None:
        """Return the ids of the cordoned log directories; None if `metadata.version` does not support them."""
        if self._features.level(METADATA_VERSION) < SINCE_CORDONED_LOG_DIRS:
            return None
        return [one for path, one in self._directory_ids.items() if self._config.is_cordoned(path)]

    def _settings_changed(self) -> None:
        cordoned = self._cordoned_log_dirs()
        if self._lifecycle is not None and cordoned is not None and cordoned != self._reported_cordoned:
            self._reported_cordoned = cordoned
            self._lifecycle.propagate_directory_cordoned()

    # -- replicas --------------------------------------------------------------------------------------------------

    async def retry_replicas(self) -> None:
        """Create the replicas that could not be created before, for example without space on the disk."""
        if self._publisher is not None:
            await self._publisher.retry_replicas()

    def _report_failed_directories(self) -> None:
        """Report failed log directories in the next heartbeat: the controller moves the leaders of their replicas."""
        if self._lifecycle is not None:
            online = {log_dir.path for log_dir in self._log_manager.held.online_dirs}
            for path, directory_id in self._directory_ids.items():
                if path not in online and directory_id not in self._reported_failures:
                    self._reported_failures.add(directory_id)
                    self._lifecycle.propagate_directory_failure(directory_id)
