"""Kafka's ShareGroupMember. State without I/O or time."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..assignment import NOTHING, Assignment
from ..modern_group_member import ModernGroupMember


@dataclass(frozen=True, slots=True)
class ShareGroupMember(ModernGroupMember):
    """One state of a member; a change creates another object.

    Partitions are shared: a member adopts its target assignment immediately, without waiting for other members.
    """

    topics: frozenset[str] = frozenset()
    """The names of the subscribed topics."""
    assigned: Assignment = field(default_factory=lambda: NOTHING)
