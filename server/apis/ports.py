"""What handlers see of the large parts of a broker: ports, and nothing behind them.

Each is fulfilled by the part of which it shows a side; a cluster, or a test, may put something else behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..quotas.charge import Pay, for_nothing

if TYPE_CHECKING:
    from ...protocol.errors import ErrorCode, KafkaError
    from ...protocol.topic_partition import TopicPartition
    from ...storage.leader_epochs import EpochEnd
    from ...storage.log_config import LogConfig
    from ...storage.producer_state import ProducerStateEntry
    from ..controller.topic_maker import CreatedTopic
    from ..controller.topic_rules import PartitionsCreation, TopicCreation
    from ..metadata.znodes import PartitionState, TopicRegistration
    from ..replication.delayed_fetch import FetchCallback, FetchParams
    from ..replication.delayed_produce import AppendCallback
    from ..replication.described_log_dirs import DescribedLogDir
    from ..replication.isr_changes import IsrChange
    from ..replication.partition import FetchIsolation, FoundOffset
    from ..replication.postponed_appends import AppendEntry
    from ..runtime.turns import Steps


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


class LogDirs(Protocol):
    """The log directories of this broker."""

    def describe_log_dirs(self, wanted: Iterable[tuple[str, Iterable[int]]] | None) -> Steps[list[DescribedLogDir]]:
        """Each with what lies in it of some partitions, or of all."""


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
