"""The states of groups of the consumer protocol, which follow from epochs and members, and those of members."""

from __future__ import annotations

from enum import Enum, IntEnum


class ConsumerGroupState(Enum):
    """The value is what ConsumerGroupDescribe and ListGroups call the state."""

    EMPTY = "Empty"
    """No members; offsets may remain."""
    ASSIGNING = "Assigning"
    """The group has changed since its target assignment was made."""
    RECONCILING = "Reconciling"
    """Some member does not have its part of the target assignment yet."""
    STABLE = "Stable"
    """Every member has what it shall have."""
    DEAD = "Dead"
    """Removed here; a member has to look for the coordinator anew."""


class MemberState(IntEnum):
    """How far a member is on the way to its target; the numbers are those in `__consumer_offsets`."""

    STABLE = 0
    """It has its part of the target assignment it was last given."""
    UNREVOKED_PARTITIONS = 1
    """It has to let go of partitions, and stays in its epoch until it says that it has."""
    UNRELEASED_PARTITIONS = 2
    """It waits for others to let go of partitions that shall be its own."""
    UNKNOWN = 127
    """What a later release wrote: the member has to begin anew."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN
