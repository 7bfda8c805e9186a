"""What a consumer reads, and how far it has come: one `TopicPartitionState` for each assigned partition. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .fetched_records import FetchedRecords

UNKNOWN = -1


class TopicPartitionState:
    """One partition: either `position` is known, or what the group committed is to be looked up (`from_committed`), or
    `reset_to` says where to look, or there is an `error`."""

    __slots__ = (
        "buffered",
        "error",
        "from_committed",
        "high_watermark",
        "is_paused",
        "partition",
        "position",
        "position_epoch",
        "preferred_replica",
        "preferred_until",
        "reset_to",
        "retry_at",
        "validated_epoch",
    )

    def __init__(self, partition: TopicPartition, reset_to: int | None, *, from_committed: bool = False) -> None:
        self.partition = partition
        self.position: int | None = None
        self.position_epoch = UNKNOWN
        """Leader epoch of the record before `position`."""
        self.validated_epoch = UNKNOWN
        """Leader epoch under which the position was last known to lie on the leader's log."""
        self.reset_to = reset_to
        """A timestamp for ListOffsets, EARLIEST or LATEST inclusive."""
        self.from_committed = from_committed
        """The group's committed offset comes before `reset_to`."""
        self.is_paused = False
        self.buffered: FetchedRecords | None = None
        self.error: KafkaError | None = None
        self.retry_at = 0.0
        self.high_watermark = UNKNOWN
        self.preferred_replica: int | None = None
        self.preferred_until = 0.0

    def seek(self, offset: int, leader_epoch: int = UNKNOWN) -> None:
        """Go on at this offset; `leader_epoch` of the record before it allows truncation to be noticed."""
        self.position = offset
        self.position_epoch = leader_epoch
        self.validated_epoch = UNKNOWN
        self.reset_to = None
        self.from_committed = False
        self.error = None
        self.buffered = None
        self.retry_at = 0.0

    def reset(self, reset_to: int) -> None:
        """Go on where ListOffsets will say."""
        self.position = None
        self.position_epoch = UNKNOWN
        self.reset_to = reset_to
        self.from_committed = False
        self.error = None
        self.buffered = None
        self.retry_at = 0.0

    def fail(self, error: KafkaError) -> None:
        """Stop until the application has been told, and seeks if the error lies in the position."""
        self.error = error
        self.buffered = None

    def needs_validation(self, leader_epoch: int) -> bool:
        """Whether there is a new leader, who may not have what the old one had."""
        if self.position is None or self.position_epoch == UNKNOWN or leader_epoch == UNKNOWN:
            return False
        return leader_epoch > max(self.validated_epoch, self.position_epoch)


class Assignment:
    """The assigned partitions by name, in the order they will be served."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, TopicPartitionState] = {}

    def assign(
        self, partitions: Iterable[TopicPartition], reset_to: int | None, *, from_committed: bool = False
    ) -> None:
        """Replace the assignment; partitions that stay keep their positions."""
        self.states = {
            tp: self.states.get(tp) or TopicPartitionState(tp, reset_to, from_committed=from_committed)
            for tp in partitions
        }

    def __getitem__(self, partition: TopicPartition) -> TopicPartitionState:
        state = self.states.get(partition)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"partition {partition} is not assigned to this consumer")
        return state

    def move_to_end(self, partition: TopicPartition) -> None:
        """This partition was served; the others come first the next time."""
        self.states[partition] = self.states.pop(partition)
