"""The assigned partitions of a consumer with their positions: one `TopicPartitionState` per partition. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .fetched_records import FetchedRecords

UNKNOWN = -1


class TopicPartitionState:
    """One partition. It has a `position`, or it needs the committed offset (`from_committed`), or `reset_to` is the
    timestamp to look up, or it has an `error`.
    """

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
        """Leader epoch under which the position was last validated against the leader's log."""
        self.reset_to = reset_to
        """A timestamp for ListOffsets, including EARLIEST and LATEST."""
        self.from_committed = from_committed
        """Whether the group's committed offset has precedence over `reset_to`."""
        self.is_paused = False
        self.buffered: FetchedRecords | None = None
        self.error: KafkaError | None = None
        self.retry_at = 0.0
        self.high_watermark = UNKNOWN
        self.preferred_replica: int | None = None
        self.preferred_until = 0.0

    def seek(self, offset: int, leader_epoch: int = UNKNOWN) -> None:
        """Continue at this offset; with the `leader_epoch` of the record before it a truncation is detected."""
        self.position = offset
        self.position_epoch = leader_epoch
        self.validated_epoch = UNKNOWN
        self.reset_to = None
        self.from_committed = False
        self.error = None
        self.buffered = None
        self.retry_at = 0.0

    def reset(self, reset_to: int) -> None:
        """Continue at the result of ListOffsets."""
        self.position = None
        self.position_epoch = UNKNOWN
        self.reset_to = reset_to
        self.from_committed = False
        self.error = None
        self.buffered = None
        self.retry_at = 0.0

    def fail(self, error: KafkaError) -> None:
        """Stop until the error has been raised, and until a seek if the error is in the position."""
        self.error = error
        self.buffered = None

    def needs_validation(self, leader_epoch: int) -> bool:
        """Return whether the leader is new, so that its log may differ from the former leader's."""
        if self.position is None or self.position_epoch == UNKNOWN or leader_epoch == UNKNOWN:
            return False
        return leader_epoch > max(self.validated_epoch, self.position_epoch)


class Assignment:
    """The assigned partitions by name, in the order in which they are served."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, TopicPartitionState] = {}

    def assign(
        self, partitions: Iterable[TopicPartition], reset_to: int | None, *, from_committed: bool = False
    ) -> None:
        """Replace the assignment; retained partitions keep their positions."""
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
        """Move this partition to the end of the order."""
        self.states[partition] = self.states.pop(partition)
