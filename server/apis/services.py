"""What handlers may ask for: the parts of a broker, each by the name of a keyword-only parameter.

A handler that says `*, metadata: ClusterMetadata` gets the metadata cache and can reach nothing else. What each part is
to the handlers is its type here: a small class, or of what is larger a port (`server/apis/ports.py`), and nobody
reaches through one to what is behind it.
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
    from ..config.settings import Settings
    from ..coordinator.group.zookeeper_offsets import ZooKeeperOffsets
    from ..coordinator.transaction.enlistment import Enlistment
    from ..coordinator.transaction.markers import MarkerWriter
    from ..metadata.cluster_features import ClusterFeatures
    from ..metadata.producer_ids import ProducerIds
    from ..quotas.quota_settings import QuotaSettings
    from ..replication.fetch_session import FetchSessions
    from ..replication.log_dir_mover import LogDirMover
    from ..runtime.ports import Work
    from ..runtime.turns import LongWork
    from ..security.scram_credentials import ScramCredentials
    from ..telemetry.client_telemetry import ClientTelemetry
    from .ports import (
        AccessRules,
        ActiveController,
        BrokersController,
        ClusterMetadata,
        CommittedOffsets,
        Configs,
        ConsumerProtocolGroups,
        ControllerOrders,
        Groups,
        LogDirs,
        ProducerTransactions,
        Replicas,
        Tokens,
    )
    from .table import Api


@dataclass(frozen=True, slots=True)
class Services:
    """Made by `services()` in `server/broker_state.py`. Loop-thread only."""

    acls: AccessRules | None
    brokers_controller: BrokersController
    committed_offsets: CommittedOffsets
    config: Settings
    configs: Configs
    consumer_groups: ConsumerProtocolGroups
    controller: ActiveController
    delegation_tokens: Tokens
    enlistment: Enlistment
    fault: Callable[[str], bool]
    features: ClusterFeatures
    fetch_sessions: FetchSessions
    groups: Groups
    log_dirs: LogDirs
    markers: MarkerWriter
    metadata: ClusterMetadata
    mover: LogDirMover
    orders: ControllerOrders | None
    """What the controller of a cluster orders; a broker alone has its own controller and takes no orders."""
    now_ms: Callable[[], int]
    producer_ids: ProducerIds
    quotas: QuotaSettings
    replica_manager: Replicas
    scram: ScramCredentials
    telemetry: ClientTelemetry | None
    """What takes clients' metrics, if anybody can read them here."""
    transactions: ProducerTransactions
    long_work: LongWork
    work: Work
    zookeeper_offsets: ZooKeeperOffsets

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
