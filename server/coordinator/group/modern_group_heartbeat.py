"""The part of a heartbeat that all groups with member epochs have in common."""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from .modern_group_member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH


@dataclass(frozen=True, slots=True)
class ModernGroupHeartbeat:
    """The member that sends a heartbeat, and its epoch."""

    group_id: str
    member_id: str
    epoch: int

    @property
    def is_joining(self) -> bool:
        """Whether the member joins, for the first time or again."""
        return self.epoch == JOIN_EPOCH

    @property
    def is_leaving(self) -> bool:
        """Whether the member leaves, permanently or as a static member that will return."""
        return self.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)


def refuse_if(is_wrong: bool, reason: str) -> None:
    """Raise KafkaError INVALID_REQUEST for a value that is missing or wrong."""
    if is_wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
