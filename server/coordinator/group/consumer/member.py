"""A member of a group of the consumer protocol: what it wants, what it has, and how far it is. Never altered."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..member import Protocols
from .assignment import NOTHING, Assignment
from .states import MemberState

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member goes, and will be back before its session is over."""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What is to be known of a member that speaks the classic protocol to a group that has moved on."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """Invariants: `assigned` and `revoking` have nothing in common; outside UNREVOKED_PARTITIONS nothing is revoking.

    Who has a partition in either owns it: nobody else is given it.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    """The names it subscribes to."""
    regex: str = ""
    """The regular expression it subscribes to; empty for none."""
    assignor: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NOTHING)
    revoking: Assignment = field(default_factory=lambda: NOTHING)
    classic: ClassicSide | None = None
    """None for a member that speaks the consumer protocol."""

    def has_reached(self, epoch: int) -> bool:
        """Whether it has all that the target assignment of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def has_left_for_now(self) -> bool:
        """Whether it is a static member that said it would be back."""
        return self.epoch == STATIC_LEAVE_EPOCH

    @property
    def protocol_name(self) -> str:
        """Under which assignor's name a classic member is answered."""
        return self.classic.protocols[0][0] if self.classic is not None else ""
