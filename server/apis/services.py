"""What handlers may ask for: the parts of a broker, each by the name of a keyword-only parameter.

A handler that says `*, metadata: MetadataCache` gets the metadata cache and can reach nothing else. What each part is
to the handlers is its type here, for the large ones a port (`server/apis/ports.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .table import SERVED, SERVED_IN_CLUSTERS, TELEMETRY
from .versions_told import VersionsTold

if TYPE_CHECKING:
    from ...protocol.apis import ApiKey
    from ..config.broker_config import BrokerConfig
    from ..config.config_repository import ConfigRepository
    from ..config.dynamic_config import DynamicConfig
    from ..controller.received_orders import ReceivedOrders
    from ..coordinator.group.coordinator import GroupCoordinator
    from ..coordinator.transaction.coordinator import TransactionCoordinator
    from ..coordinator.transaction.enlistment import Enlistment
    from ..coordinator.transaction.markers import MarkerWriter
    from ..metadata.cluster_features import ClusterFeatures
    from ..metadata.config_store import ConfigStore
    from ..metadata.metadata_cache import MetadataCache
    from ..metadata.metadata_store import MetadataStore
    from ..metadata.producer_ids import ProducerIds
    from ..quotas.client_quotas import ClientQuotas
    from ..replication.fetch_session import FetchSessions
    from ..replication.log_dir_mover import LogDirMover
    from ..runtime.ports import Work
    from ..runtime.turns import LongWork, Turns
    from ..security.acl_authorizer import AclAuthorizer
    from ..security.delegation_tokens import DelegationTokens
    from ..telemetry.client_telemetry import ClientTelemetry
    from .ports import ActiveController, LogDirs, Replicas
    from .table import Api


@dataclass(frozen=True, slots=True)
class Services:
    """Built by `server/broker.py`. Loop-thread only."""

    acls: AclAuthorizer | None
    broker_id: int
    config: BrokerConfig
    config_store: ConfigStore
    configs: ConfigRepository
    controller: ActiveController
    delegation_tokens: DelegationTokens
    dynamic_config: DynamicConfig
    enlistment: Enlistment
    fault: Callable[[str], bool]
    features: ClusterFeatures
    fetch_sessions: FetchSessions
    groups: GroupCoordinator
    log_dirs: LogDirs
    markers: MarkerWriter
    metadata: MetadataCache
    mover: LogDirMover
    orders: ReceivedOrders | None
    """What the controller of a cluster orders; a broker alone has its own controller and takes no orders."""
    now_ms: Callable[[], int]
    producer_ids: ProducerIds
    quotas: ClientQuotas
    replica_manager: Replicas
    store: MetadataStore
    telemetry: ClientTelemetry | None
    """What takes clients' metrics, if anybody can read them here."""
    transactions: TransactionCoordinator
    turns: Turns
    long_work: LongWork
    work: Work

    @property
    def served(self) -> Mapping[ApiKey, Api]:
        """The APIs of this broker."""
        served = SERVED if self.orders is None else SERVED_IN_CLUSTERS
        return served if self.telemetry is None else served | TELEMETRY

    @property
    def versions(self) -> VersionsTold:
        """What clients are told of them; whoever is given it keeps it."""
        return VersionsTold(self.served, self.features)


def bind(handle: Callable[..., Any], services: object) -> Callable[..., Any]:
    """The handler with the services that its keyword-only parameters name.

    They become a copy's defaults, as a `partial` with keywords makes a dict for each call.
    """
    wanted = [one.name for one in inspect.signature(handle).parameters.values() if one.kind is one.KEYWORD_ONLY]
    if not wanted or not isinstance(handle, FunctionType):
        return handle
    bound = FunctionType(handle.__code__, handle.__globals__, handle.__name__, handle.__defaults__, handle.__closure__)
    bound.__kwdefaults__ = {name: getattr(services, name) for name in wanted}
    return bound
