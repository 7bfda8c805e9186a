"""What handlers see of the large parts of a broker: ports, and nothing behind them.

Each is fulfilled by the part of which it shows a side; a cluster, or a test, may put something else behind it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..quotas.charge import Pay, for_nothing

if TYPE_CHECKING:
    from uuid import UUID

    from ...protocol.acl_bindings import AclBinding, AclBindingFilter, ResourcePattern
    from ...protocol.config_resources import ConfigResourceType
    from ...protocol.errors import ErrorCode, KafkaError
    from ...protocol.messages.metadata import MetadataResponseBroker, MetadataResponseTopic
    from ...protocol.producer_identity import ProducerIdentity
    from ...protocol.topic_partition import TopicPartition
    from ...storage.leader_epochs import EpochEnd
    from ...storage.log_config import LogConfig
    from ...storage.producer_state import ProducerStateEntry
    from ..config.config_changes import ConfigChanger
    from ..config.config_description import ConfigDescriber
    from ..controller.control_requests import StopOrder
    from ..controller.replica_channel import MetadataUpdate
    from ..controller.topic_maker import CreatedTopic
    from ..controller.topic_rules import PartitionsCreation, TopicCreation
    from ..coordinator.allowance import Maker
    from ..coordinator.group.answers import Later
    from ..coordinator.group.consumer.beat import Beat, BeatReply
    from ..coordinator.group.consumer.group import ConsumerGroup
    from ..coordinator.group.group import Group
    from ..coordinator.group.group_port import GroupPort
    from ..coordinator.group.member import Leaver, LeaveReply
    from ..coordinator.group.offset_commits import Commits, Committer, Reply
    from ..coordinator.group.requests import Joining, Syncing
    from ..coordinator.transaction.metadata import Place
    from ..coordinator.transaction.states import TransactionState
    from ..coordinator.transaction.transaction import HeldTransaction
    from ..metadata.metadata_cache import PartitionImage
    from ..metadata.metadata_store import StoreError
    from ..metadata.token_store import DelegationToken
    from ..metadata.znodes import BrokerEndpoint, BrokerRegistration, PartitionState, TopicRegistration
    from ..replication.delayed_fetch import FetchCallback, FetchParams
    from ..replication.delayed_produce import AppendCallback
    from ..replication.described_log_dirs import DescribedLogDir
    from ..replication.isr_changes import IsrChange
    from ..replication.partition import FetchIsolation, FoundOffset
    from ..replication.partition_order import PartitionOrder
    from ..replication.postponed_appends import AppendEntry
    from ..runtime.turns import Steps

T = TypeVar("T")


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


class ClusterMetadata(Protocol):
    """What this broker believes about the cluster. Answers are shared: nobody alters them."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def controller_id(self) -> int:
        """-1 while none is known."""

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]:
        """Live brokers by id."""

    def endpoint(self, broker_id: int, listener_name: str) -> BrokerEndpoint | None:
        """Where clients of a listener reach a live broker."""

    def response_brokers(self, listener_name: str) -> list[MetadataResponseBroker]:
        """The brokers reachable on a listener."""

    @property
    def names(self) -> Mapping[bytes, str]:
        """Of topics by the bytes of their ids."""

    @property
    def topic_names(self) -> Iterable[str]:
        """All topics' names."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """None for an id that no topic has."""

    def topic_id(self, name: str) -> UUID | None:
        """None for a name that no topic has."""

    def has_partition(self, topic: str, index: int) -> bool:
        """Whether the partition exists, wherever its replicas are."""

    def partition(self, partition: TopicPartition) -> PartitionImage | None:
        """Who leads a partition and has it."""

    def response_topic(self, name: str, listener_name: str, version: int) -> MetadataResponseTopic | None:
        """A topic as a Metadata response of that version describes it."""


class Configs(Protocol):
    """The settings of all resources."""

    def describer(self, *, with_synonyms: bool, with_documentation: bool) -> ConfigDescriber:
        """Who describes resources for one request."""

    def changer(self, *, validate_only: bool) -> ConfigChanger:
        """Who changes resources for one request."""

    def configured(self, resource_type: ConfigResourceType) -> Iterable[str]:
        """The names of all groups, or of all subscriptions to clients' metrics, that have settings of their own."""


class LogDirs(Protocol):
    """The log directories of this broker."""

    def describe_log_dirs(self, wanted: Iterable[tuple[str, Iterable[int]]] | None) -> Steps[list[DescribedLogDir]]:
        """Each with what lies in it of some partitions, or of all."""


class Groups(Protocol):
    """The groups of this broker, of whatever kind, and their members that speak the classic protocol.

    KafkaError is raised for a group of another broker, and for one that is not loaded yet.
    """

    @property
    def groups(self) -> Iterable[GroupPort]:
        """All that are loaded."""

    @property
    def is_loading(self) -> bool:
        """Whether some are not known yet."""

    async def find_coordinator(self, group_id: str) -> int:
        """The id of the broker that coordinates a group. Raises KafkaError COORDINATOR_NOT_AVAILABLE."""

    def find(self, group_id: str) -> GroupPort | None:
        """A group, None if it does not exist."""

    def classic_group(self, group_id: str) -> Group:
        """A classic group. Raises KafkaError GROUP_ID_NOT_FOUND if there is none, or if it is one of another kind."""

    def later(self, reply: Callable[[T], None]) -> Later[T]:
        """How a member is answered that waits for the others: when it is its turn."""

    def join(self, group_id: str, joining: Joining) -> None:
        """JoinGroup; the request says how to answer it. The first to join makes the group."""

    def sync(self, group: GroupPort, syncing: Syncing) -> None:
        """SyncGroup; the request says how to answer it."""

    def heartbeat(self, group: GroupPort, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """A sign of life; returns whether the member has to join again."""

    def leave(self, group: GroupPort, leaving: Sequence[Leaver], reply: LeaveReply) -> None:
        """Members go; `reply` gets the outcome when it is durable."""

    def delete(self, group_id: str, reply: Callable[[ErrorCode], None]) -> None:
        """Delete a group without members; `reply` gets the outcome when that is durable, or any error."""


class ConsumerProtocolGroups(Protocol):
    """Groups of the consumer protocol (KIP-848), for clients that speak it. KafkaError is raised as by `Groups`."""

    @property
    def are_served(self) -> bool:
        """Whether the protocol is spoken here."""

    @property
    def assignors(self) -> Sequence[str]:
        """The assignors that members may ask for, the default first."""

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """A group of this kind. Raises KafkaError GROUP_ID_NOT_FOUND if there is none, or if it is one of another."""

    def consumer_group_heartbeat(self, beat: Beat, reply: BeatReply) -> None:
        """A member joins, leaves or stays; `reply` gets the outcome when it is durable."""


class CommittedOffsets(Protocol):
    """How far groups of this broker have read. KafkaError is raised as by `Groups`."""

    def find(self, group_id: str) -> GroupPort | None:
        """A group with what it has committed, None if it does not exist."""

    def check_served(self, group_id: str) -> None:
        """Raises KafkaError if a group could commit nothing here, whether or not it exists."""

    def place_of(self, group_id: str) -> Place:
        """The partition that has what a group commits."""

    def commit(self, group_id: str, committer: Committer, offsets: Commits, reply: Reply) -> None:
        """Write offsets down; `reply` gets the outcome when they are durable. May make the group."""

    def commit_in_transaction(
        self, group_id: str, committer: Committer, producer: ProducerIdentity, offsets: Commits, reply: Reply
    ) -> None:
        """As `commit`, but they count when the producer's transaction is committed."""

    def remove_offsets(self, group: GroupPort, places: Iterable[Place], reply: Reply) -> None:
        """Delete offsets; `reply` gets the outcome when that is durable."""

    async def not_confirmed(self, group_ids: Iterable[str]) -> Container[str]:
        """Those of these groups of which nobody can say that this broker still coordinates them."""


class ProducerTransactions(Protocol):
    """What producers may ask of the transaction coordinator. `reply` is told once, when what it says is durable."""

    async def find_coordinator(self, transactional_id: str) -> int:
        """The id of the broker that coordinates it. Raises KafkaError COORDINATOR_NOT_AVAILABLE."""

    @property
    def is_loading(self) -> bool:
        """Whether some transactional ids are not known yet."""

    @property
    def transactions(self) -> Iterable[HeldTransaction]:
        """All transactional ids of this broker."""

    def find(self, transactional_id: str) -> HeldTransaction | None:
        """What is known of one. Raises KafkaError."""

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None, maker: Maker
    ) -> ProducerIdentity:
        """An id and epoch; whoever had them before is fenced. Raises KafkaError."""

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        places: frozenset[Place],
        client_version: int,
        reply: Callable[[ErrorCode], None],
    ) -> None:
        """These partitions take part in the producer's transaction, which may begin by it."""

    def add_partitions_soon(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        places: frozenset[Place],
        client_version: int,
        reply: Callable[[ErrorCode], None],
    ) -> None:
        """As `add_partitions`, when the transaction before has ended if that is soon."""

    def verify_partitions(
        self, transactional_id: str, identity: ProducerIdentity, places: frozenset[Place]
    ) -> Mapping[Place, ErrorCode]:
        """Whether each of these partitions is part of the producer's transaction."""

    def end(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        wanted: TransactionState,
        ended: Callable[[ProducerIdentity | ErrorCode], None],
        *,
        client_version: int,
        spare: int,
    ) -> None:
        """Commit or abort; `ended` is told who the producer is from now on, or the error."""


class AccessRules(Protocol):
    """The rules of who may do what."""

    async def selected(self, wanted: AclBindingFilter) -> Sequence[AclBinding]:
        """The rules that a filter selects."""

    async def create(self, bindings: Iterable[AclBinding]) -> Mapping[ResourcePattern, StoreError | ValueError]:
        """Add rules; those about the resources that it returns an error for are not there."""

    async def delete(self, bindings: Iterable[AclBinding]) -> None:
        """Take rules back. Raises StoreError, ValueError where some of them could not be."""


class Tokens(Protocol):
    """Delegation tokens. Each raises KafkaError."""

    async def create(self, owner: str, requester: str, renewers: Sequence[str], max_life_ms: int) -> DelegationToken:
        """A new one, for as long as is asked and allowed."""

    async def renew(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Have one last longer; until when, in ms."""

    async def expire(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Have one end, at once if the period is negative; when, in ms."""

    def all(self) -> AsyncIterator[DelegationToken]:
        """Every token, some in each turn of the loop."""

    def secret(self, token_id: str) -> bytes:
        """What whoever has the token knows."""


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


class ControllerOrders(Protocol):
    """What the cluster's controller may order. Each raises KafkaError for one that is not the present controller."""

    async def leader_and_isr(
        self, orders: Sequence[PartitionOrder], *, controller_epoch: int, broker_epoch: int
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Lead or follow; each partition on its own."""

    async def stop_replicas(
        self, stops: Iterable[StopOrder], *, controller_epoch: int, broker_epoch: int
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Give replicas up."""

    async def update_metadata(
        self, update: MetadataUpdate, *, controller_id: int, controller_epoch: int, broker_epoch: int
    ) -> None:
        """Believe this of the cluster."""


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
