"""The parts of a running broker that request handlers reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .apis.services import Services
from .config.config_repository import ConfigRepository
from .coordinator.group.zookeeper_offsets import ZooKeeperOffsets
from .metadata.scram_store import ScramStore
from .quotas.quota_settings import QuotaSettings
from .security.scram_credentials import ScramCredentials

if TYPE_CHECKING:
    from ..storage.log_manager import LogManager
    from .cleaning.log_cleaner import LogCleaner
    from .config.broker_config import BrokerConfig
    from .config.dynamic_config import DynamicConfig
    from .controller.controller import Controller
    from .controller.received_orders import ReceivedOrders
    from .coordinator.group.coordinator import GroupCoordinator
    from .coordinator.transaction.transactions import Transactions
    from .metadata.cluster_features import ClusterFeatures
    from .metadata.cluster_store import ClusterStore
    from .metadata.config_store import ConfigStore
    from .metadata.metadata_cache import MetadataCache
    from .metadata.metadata_store import MetadataStore
    from .metadata.producer_ids import ProducerIds
    from .quotas.client_quotas import ClientQuotas
    from .replication.fetch_session import FetchSessions
    from .replication.log_dir_mover import LogDirMover
    from .replication.replica_manager import ReplicaManager
    from .runtime.ports import Ports
    from .runtime.turns import LongWork, Turns
    from .security.broker_security import BrokerSecurity
    from .telemetry.client_telemetry import ClientTelemetry


@dataclass(slots=True)
class BrokerState:
    """Built by `server/broker.py`; handlers get of it what `apis/services.py` names."""

    broker_id: int
    cluster_id: str
    broker_epoch: int
    config: BrokerConfig
    ports: Ports
    store: MetadataStore
    cluster_store: ClusterStore
    config_store: ConfigStore
    dynamic_config: DynamicConfig
    metadata: MetadataCache
    controller: Controller
    orders: ReceivedOrders | None
    producer_ids: ProducerIds
    features: ClusterFeatures
    log_manager: LogManager
    replica_manager: ReplicaManager
    cleaner: LogCleaner
    mover: LogDirMover
    fetch_sessions: FetchSessions
    turns: Turns
    long_work: LongWork
    groups: GroupCoordinator
    transactions: Transactions
    quotas: ClientQuotas
    security: BrokerSecurity
    telemetry: ClientTelemetry | None


def services(state: BrokerState) -> Services:
    """What handlers may ask for."""
    return Services(
        acls=state.security.acls,
        brokers_controller=state.controller,
        committed_offsets=state.groups,
        config=state.config,
        configs=ConfigRepository(state.broker_id, state.dynamic_config, state.config_store, state.metadata),
        consumer_groups=state.groups.consumer_groups,
        controller=state.controller,
        delegation_tokens=state.security.delegation_tokens,
        enlistment=state.transactions.enlistment,
        fault=state.ports.fault,
        features=state.features,
        fetch_sessions=state.fetch_sessions,
        groups=state.groups,
        log_dirs=state.replica_manager,
        markers=state.transactions.markers,
        metadata=state.metadata,
        mover=state.mover,
        orders=state.orders,
        now_ms=state.ports.now_ms,
        producer_ids=state.producer_ids,
        quotas=QuotaSettings(state.store, state.config_store, state.quotas, state.dynamic_config.changing),
        replica_manager=state.replica_manager,
        scram=ScramCredentials(ScramStore(state.config_store), state.dynamic_config.changing),
        telemetry=state.telemetry,
        transactions=state.transactions.coordinator,
        long_work=state.long_work,
        work=state.ports.work,
        zookeeper_offsets=ZooKeeperOffsets(state.store),
    )
