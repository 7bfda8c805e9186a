"""A member of a consumer group (Kafka: ConsumerGroupMember and MemberState). Values without I/O or time."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from .assignment import NO_EPOCHS, NOTHING, Assignment, PartitionEpochs
from .classic_group import Protocols
from .modern_group_member import StaticGroupMember


class MemberState(IntEnum):
    """The reconciliation state of a member; the values are stored in `__consumer_offsets`."""

    STABLE = 0
    """The member has all partitions of its last target assignment."""
    UNREVOKED_PARTITIONS = 1
    """The member has to revoke partitions, and keeps its epoch until it has confirmed the revocation."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have not released."""
    UNKNOWN = 127
    """A state of a later version: the member has to join again."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicProtocolMember:
    """The values of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember(StaticGroupMember):
    """One state of a member; a change creates another object.

    The member owns the partitions in `assigned` and in `revoking`: no other member can have them.
    Invariants: `assigned` and `revoking` are disjoint; `revoking` is empty outside UNREVOKED_PARTITIONS.
    """

    topics: frozenset[str] = frozenset()
    """The names of the subscribed topics."""
    regex: str = ""
    """The subscribed regular expression; empty for none."""
    assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NOTHING)
    revoking: Assignment = field(default_factory=lambda: NOTHING)
    assignment_epochs: PartitionEpochs = field(default_factory=lambda: NO_EPOCHS)
    """The epochs in which the partitions in `assigned` and in `revoking` were assigned."""
    classic: ClassicProtocolMember | None = None
    """None for a member that uses the consumer protocol."""

    def has_reached(self, epoch: int) -> bool:
        """Return whether the member has its whole target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """Return the epoch in which the member received a partition; None for a partition that it does not own."""
        if not any(partition in owned.get(topic_id, ()) for owned in (self.assigned, self.revoking)):
            return None
        return self.assignment_epochs.get(topic_id, {}).get(partition, 0)

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    @property
    def is_revoking(self) -> bool:
        return self.state is MemberState.UNREVOKED_PARTITIONS

    @property
    def protocol_name(self) -> str:
        """The name of the assignor in responses to a classic member."""
        return self.classic.protocols[0][0] if self.classic is not None else ""
