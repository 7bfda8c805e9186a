"""The parts of a running broker that request handlers reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .apis.services import Services
from .config.config_repository import ConfigRepository
from .controller.kafka_controller import KafkaController
from .coordinator.group.zookeeper_offsets import ZooKeeperOffsets
from .metadata.scram_store import ScramStore
from .quotas.quota_settings import QuotaSettings
from .security.scram_credentials import ScramCredentials

if TYPE_CHECKING:
    from ..storage.log_manager import LogManager
    from .cleaning.log_cleaner import LogCleaner
    from .config.broker_config import BrokerConfig
    from .config.dynamic_config import DynamicConfig
    from .controller.controller_client import ControllerClient
    from .controller.controller_request_handler import ControllerRequestHandler
    from .controller.forwarding_manager import ForwardingManager
    from .coordinator.group.group_coordinator import GroupCoordinator
    from .coordinator.group.partition_metadata_client import PartitionMetadataClient
    from .coordinator.share.share_coordinator import ShareCoordinator
    from .coordinator.transaction.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from .coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from .coordinator.transaction.transaction_marker_channel_manager import MarkerWriter
    from .metadata.cluster_features import Features
    from .metadata.cluster_store import ClusterStore
    from .metadata.config_store import ConfigStore
    from .metadata.metadata_cache import MetadataCache
    from .metadata.metadata_store import MetadataStore
    from .metadata.metadata_stores import MetadataStores
    from .metadata.producer_id_manager import ProducerIdManager
    from .quotas.quota_managers import QuotaManagers
    from .replication.disk_space_monitor import DiskSpaceMonitor
    from .replication.fetch_session import FetchSessionCache
    from .replication.replica_alter_log_dirs_manager import ReplicaAlterLogDirsManager
    from .replication.replica_manager import ReplicaManager
    from .runtime.loop_sharing import SlicedWork, TurnQueue
    from .runtime.ports import Ports
    from .security.broker_security import BrokerSecurity
    from .share.persister import Persister
    from .share.share_partition_manager import SharePartitionManager
    from .telemetry.client_metrics_manager import ClientMetricsManager


@dataclass(slots=True)
class BrokerState:
    """All parts of one broker, built by `server/broker.py`."""

    broker_id: int
    cluster_id: str
    broker_epoch: int
    config: BrokerConfig
    ports: Ports
    stores: MetadataStores | None
    """The stores of the metadata tree; None in a KRaft cluster, which has no tree."""
    config_store: ConfigStore
    dynamic_config: DynamicConfig
    metadata: MetadataCache
    controller_client: ControllerClient
    orders: ControllerRequestHandler | None
    forwarding_manager: ForwardingManager | None
    producer_ids: ProducerIdManager
    features: Features
    log_manager: LogManager
    replica_manager: ReplicaManager
    cleaner: LogCleaner
    replica_alter_log_dirs_manager: ReplicaAlterLogDirsManager
    fetch_sessions: FetchSessionCache
    turn_queue: TurnQueue
    sliced_work: SlicedWork
    group_coordinator: GroupCoordinator
    partition_metadata_client: PartitionMetadataClient
    transaction_coordinator: TransactionCoordinator
    marker_writer: MarkerWriter
    add_partitions_to_txn_manager: AddPartitionsToTxnManager
    share_coordinator: ShareCoordinator
    persister: Persister
    share_partition_manager: SharePartitionManager
    quotas: QuotaManagers
    security: BrokerSecurity
    telemetry: ClientMetricsManager | None
    disk_space: DiskSpaceMonitor

    @property
    def store(self) -> MetadataStore:
        """The metadata tree. Not in a KRaft cluster."""
        assert self.stores is not None, "a KRaft cluster has no metadata tree"
        return self.stores.store

    @property
    def cluster_store(self) -> ClusterStore:
        """The brokers and the controller in the metadata tree. Not in a KRaft cluster."""
        assert self.stores is not None, "a KRaft cluster has no metadata tree"
        return self.stores.cluster

    @property
    def controller(self) -> KafkaController:
        """The controller of this broker, which may be inactive. Not in a KRaft cluster."""
        assert isinstance(self.controller_client, KafkaController), "the controllers of a quorum are other processes"
        return self.controller_client


def services(state: BrokerState) -> Services:
    """Collect the parts of the broker that handlers use."""
    return Services(
        acl_authorizer=state.security.acls,
        add_partitions_to_txn_manager=state.add_partitions_to_txn_manager,
        auto_topic_creation_manager=state.controller_client.auto_topic_creation_manager,
        client_metrics_manager=state.telemetry,
        config=state.config,
        config_repository=ConfigRepository(state.broker_id, state.dynamic_config, state.config_store, state.metadata),
        consumer_group_manager=state.group_coordinator.consumer_group_manager,
        controller=state.controller_client,
        controller_request_handler=state.orders,
        delegation_token_manager=state.security.delegation_tokens,
        fault=state.ports.fault,
        features=state.features,
        forwarding_manager=state.forwarding_manager,
        fetch_sessions=state.fetch_sessions,
        group_coordinator=state.group_coordinator,
        replica_alter_log_dirs_manager=state.replica_alter_log_dirs_manager,
        marker_writer=state.marker_writer,
        metadata_cache=state.metadata,
        now_ms=state.ports.now_ms,
        partition_metadata_client=state.partition_metadata_client,
        producer_ids=state.producer_ids,
        quota_settings=QuotaSettings(state.config_store, state.quotas, state.dynamic_config.changing),
        replica_manager=state.replica_manager,
        scram_credentials=ScramCredentials(ScramStore(state.config_store), state.dynamic_config.changing),
        share_coordinator=state.share_coordinator,
        share_group_manager=state.group_coordinator.share_group_manager,
        share_partition_manager=state.share_partition_manager,
        sliced_work=state.sliced_work,
        streams_group_manager=state.group_coordinator.streams_group_manager,
        transaction_coordinator=state.transaction_coordinator,
        work=state.ports.work,
        zookeeper_offsets=(
            None if state.stores is None else ZooKeeperOffsets(state.store, state.config, state.ports.now_ms)
        ),
    )
