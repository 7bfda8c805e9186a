"""The parts of a broker that handlers use: a handler names each part that it needs as a keyword-only parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .api_version_manager import ApiVersionManager
from .table import FORWARDED, SERVED, SERVED_IN_CLUSTERS, SERVED_IN_KRAFT, TELEMETRY

if TYPE_CHECKING:
    from ...protocol.apis import ApiKey
    from ..config.config_repository import ConfigRepository
    from ..config.settings import Settings
    from ..controller.auto_topic_creation_manager import AutoTopicCreationManager
    from ..controller.controller_client import ControllerClient
    from ..controller.controller_request_handler import ControllerRequestHandler
    from ..controller.forwarding_manager import ForwardingManager
    from ..coordinator.group.consumer_group_manager import ConsumerGroupManager
    from ..coordinator.group.group_coordinator import GroupCoordinator
    from ..coordinator.group.partition_metadata_client import PartitionMetadataClient
    from ..coordinator.group.share.share_group_manager import ShareGroupManager
    from ..coordinator.group.streams.streams_group_manager import StreamsGroupManager
    from ..coordinator.group.zookeeper_offsets import ZooKeeperOffsets
    from ..coordinator.share.share_coordinator import ShareCoordinator
    from ..coordinator.transaction.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from ..coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from ..coordinator.transaction.transaction_marker_channel_manager import MarkerWriter
    from ..metadata.cluster_features import Features
    from ..metadata.metadata_cache import MetadataCache
    from ..metadata.producer_id_manager import ProducerIdManager
    from ..quotas.quota_settings import QuotaSettings
    from ..replication.fetch_session import FetchSessionCache
    from ..replication.replica_alter_log_dirs_manager import ReplicaAlterLogDirsManager
    from ..replication.replica_manager import ReplicaManager
    from ..runtime.loop_sharing import SlicedWork
    from ..runtime.ports import Work
    from ..security.acl_authorizer import AclAuthorizer
    from ..security.delegation_token_manager import DelegationTokenManager
    from ..security.scram_credentials import ScramCredentials
    from ..share.share_partition_manager import SharePartitionManager
    from ..telemetry.client_metrics_manager import ClientMetricsManager
    from .table import Api


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the broker that handlers use, each under the name of its class. Made by `broker_state.services`."""

    acl_authorizer: AclAuthorizer | None
    add_partitions_to_txn_manager: AddPartitionsToTxnManager
    auto_topic_creation_manager: AutoTopicCreationManager
    client_metrics_manager: ClientMetricsManager | None
    """Receives the metrics of clients; None if no reporter of the broker exports them."""
    config: Settings
    config_repository: ConfigRepository
    consumer_group_manager: ConsumerGroupManager
    controller: ControllerClient
    controller_request_handler: ControllerRequestHandler | None
    """Handles the requests of the cluster's controller; None for a single broker, which is its own controller."""
    delegation_token_manager: DelegationTokenManager
    fault: Callable[[str], bool]
    features: Features
    forwarding_manager: ForwardingManager | None
    """Forwards requests to the controllers of a KRaft cluster; None in other clusters."""
    fetch_sessions: FetchSessionCache
    group_coordinator: GroupCoordinator
    replica_alter_log_dirs_manager: ReplicaAlterLogDirsManager
    marker_writer: MarkerWriter
    metadata_cache: MetadataCache
    now_ms: Callable[[], int]
    partition_metadata_client: PartitionMetadataClient
    producer_ids: ProducerIdManager
    quota_settings: QuotaSettings
    replica_manager: ReplicaManager
    scram_credentials: ScramCredentials
    share_coordinator: ShareCoordinator
    share_group_manager: ShareGroupManager
    share_partition_manager: SharePartitionManager
    sliced_work: SlicedWork
    streams_group_manager: StreamsGroupManager
    transaction_coordinator: TransactionCoordinator
    work: Work
    zookeeper_offsets: ZooKeeperOffsets | None
    """The offsets of the consumers of Kafka 0.8; None in a KRaft cluster."""

    @property
    def served(self) -> Mapping[ApiKey, Api]:
        """The APIs that this broker serves."""
        served = SERVED if self.controller_request_handler is None else SERVED_IN_CLUSTERS
        if self.forwarding_manager is not None:
            served = SERVED_IN_KRAFT
        return served if self.client_metrics_manager is None else served | TELEMETRY

    @property
    def api_version_manager(self) -> ApiVersionManager:
        """A new source of ApiVersions responses; a handler gets it once."""
        forwarding = self.forwarding_manager
        if forwarding is None:
            return ApiVersionManager(self.served, self.features)
        return ApiVersionManager(
            self.served,
            self.features,
            forwarded=FORWARDED,
            controller_api_versions=lambda: forwarding.controller_api_versions,
        )


def bind(handle: Callable[..., Any], services: object) -> Callable[..., Any]:
    """Return the handler with the services that its keyword-only parameters name.

    The services are the defaults of a copy of the function: a `partial` with keywords builds a dict for each call.
    """
    wanted = [param.name for param in inspect.signature(handle).parameters.values() if param.kind is param.KEYWORD_ONLY]
    if not wanted or not isinstance(handle, FunctionType):
        return handle
    bound = FunctionType(handle.__code__, handle.__globals__, handle.__name__, handle.__defaults__, handle.__closure__)
    bound.__kwdefaults__ = {name: getattr(services, name) for name in wanted}
    return bound
