"""What handlers may ask for: the parts of a broker, each by the name of a keyword-only parameter.

A handler that says `*, metadata: MetadataCache` gets the metadata cache and can reach nothing else. What each part is
to the handlers is its type here; where that is a port, a cluster may put something else behind it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from ..quotas.charge import Pay, for_nothing
from .table import SERVED, SERVED_IN_CLUSTERS, TELEMETRY
from .versions_told import VersionsTold

if TYPE_CHECKING:
    from ...protocol.apis import ApiKey
    from ...protocol.errors import ErrorCode, KafkaError
    from ...protocol.topic_partition import TopicPartition
    from ...storage.filesystem import FileSystem
    from ...storage.leader_epochs import EpochEnd
    from ...storage.log_config import LogConfig
    from ...storage.log_manager import LogManager
    from ...storage.producer_state import ProducerStateEntry
    from ..config.broker_config import BrokerConfig
    from ..config.config_repository import ConfigRepository
    from ..config.dynamic_config import DynamicConfig
    from ..controller.received_orders import ReceivedOrders
    from ..controller.topic_maker import CreatedTopic
    from ..controller.topic_rules import PartitionsCreation, TopicCreation
    from ..coordinator.group.coordinator import GroupCoordinator
    from ..coordinator.transaction.coordinator import TransactionCoordinator
    from ..coordinator.transaction.enlistment import Enlistment
    from ..coordinator.transaction.markers import MarkerWriter
    from ..metadata.cluster_features import ClusterFeatures
    from ..metadata.config_store import ConfigStore
    from ..metadata.metadata_cache import MetadataCache
    from ..metadata.metadata_store import MetadataStore
    from ..metadata.producer_ids import ProducerIds
    from ..metadata.znodes import PartitionState, TopicRegistration
    from ..quotas.client_quotas import ClientQuotas
    from ..replication.delayed_fetch import FetchCallback, FetchParams
    from ..replication.delayed_produce import AppendCallback
    from ..replication.fetch_session import FetchSessions
    from ..replication.isr_changes import IsrChange
    from ..replication.log_dir_mover import LogDirMover
    from ..replication.partition import FetchIsolation, FoundOffset
    from ..replication.postponed_appends import AppendEntry
    from ..runtime.ports import Work
    from ..runtime.turns import LongWork, Turns
    from ..security.acl_authorizer import AclAuthorizer
    from ..security.delegation_tokens import DelegationTokens
    from ..telemetry.client_telemetry import ClientTelemetry
    from .table import Api


class Replicas(Protocol):
    """The doors of this broker's replicas. For what is wrong with a partition as a whole they raise KafkaError."""

    @property
    def failures(self) -> int:
        """How often a partition was not served because of a mistake of the broker's."""

    def append_records(
        self,
        entries: Iterable[AppendEntry],
        required_acks: int,
        timeout_ms: float,
        callback: AppendCallback,
        *,
        produce_version: int,
        internal_topics_allowed: bool = False,
        in_transaction: bool = False,
    ) -> None:
        """Append to partitions; a result for each comes when as many have it as the acks say."""

    def fetch_records(
        self, params: FetchParams, callback: FetchCallback, *, on_resume: Callable[[], None] | None = None
    ) -> Cancellable | None:
        """Read partitions, and wait until there is enough; what waits is returned."""

    async def delete_records(
        self, offsets: Sequence[tuple[str, int, int]], timeout_ms: float
    ) -> list[int | KafkaError]:
        """Raise log starts, everywhere; the low watermarks that come of it."""

    def fetch_offset_for_timestamp(
        self, topic: str, index: int, timestamp: int, *, isolation: FetchIsolation, current_leader_epoch: int = -1
    ) -> FoundOffset:
        """An offset by time, or one of the special ones."""

    def legacy_fetch_offsets_for_timestamp(
        self, topic: str, index: int, timestamp: int, *, isolation: FetchIsolation, max_num_offsets: int
    ) -> list[int]:
        """Offsets of segments' starts, as ListOffsets 0 has them."""

    def last_offset_for_leader_epoch(
        self, topic: str, index: int, leader_epoch: int, *, current_leader_epoch: int
    ) -> EpochEnd:
        """Where an epoch ends."""

    def active_producers(self, topic: str, index: int) -> Mapping[int, ProducerStateEntry]:
        """The producers that a partition knows, by their ids."""

    def log_config(self, topic: str, index: int) -> LogConfig:
        """How a partition is kept."""

    def loop_time(self) -> float:
        """Monotonic seconds."""


class Cancellable(Protocol):
    """Something that goes on."""

    def cancel(self) -> None:
        """Give it up without an answer."""


class ActiveController(Protocol):
    """What clients may ask of the cluster's controller. Each raises KafkaError if nothing at all could be done."""

    @property
    def is_active(self) -> bool:
        """Whether it is this broker."""

    async def create_topics(
        self, wishes: Sequence[TopicCreation], *, validate_only: bool = False, pay: Pay = for_nothing
    ) -> Mapping[str, CreatedTopic | KafkaError]:
        """Each topic on its own, by name."""

    @property
    def heard(self) -> Callable[[float], Awaitable[None]]:
        """Returns when the other brokers have heard of all that was done, or are gone, or after so many seconds."""

    async def auto_create(self, names: Iterable[str], *, pay: Pay = for_nothing) -> dict[str, KafkaError | None]:
        """Topics with the broker's defaults, because somebody asked for them."""

    async def create_partitions(
        self, wishes: Sequence[PartitionsCreation], *, validate_only: bool = False, pay: Pay = for_nothing
    ) -> dict[str, KafkaError | None]:
        """More partitions, each topic on its own."""

    async def delete_topics(
        self, names: Iterable[str], *, timeout_ms: float, pay: Pay = for_nothing
    ) -> dict[str, KafkaError | None]:
        """Each topic on its own; what is not done after that time goes on."""

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, allow_unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Leaders for these partitions, or wherever it makes a difference."""

    def reassignments(self) -> list[TopicRegistration]:
        """Topics of which a partition is on its way to other brokers."""

    async def reassign(
        self, wishes: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Other replicas for partitions, each on its own; None ends what is going on."""


class BrokersController(Protocol):
    """What other brokers may ask of the cluster's controller. Each raises KafkaError NOT_CONTROLLER elsewhere."""

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Others lead what a broker leads; what has to stay is returned."""

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[IsrChange]
    ) -> Mapping[TopicPartition, PartitionState | ErrorCode]:
        """Other in-sync replicas for partitions that the broker leads."""

    def broker_epoch(self, broker_id: int) -> int | None:
        """Of a live broker."""


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
    filesystem: FileSystem
    groups: GroupCoordinator
    log_manager: LogManager
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
