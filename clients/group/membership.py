"""The state of a member: state, generation, and whether it must join again. No I/O, no clock."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from .assignor import NO_GENERATION

logger = room_logger("clients.group")


class MembershipState(Enum):
    """Progress of a join."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class Generation(NamedTuple):
    """One generation of a group from the view of one member."""

    number: int
    member_id: str


OUTSIDE = Generation(NO_GENERATION, "")
_BEATING = frozenset({MembershipState.SYNCING, MembershipState.STABLE})


class GroupMembership:
    """Starts outside of a group, with a pending join.

    needs_prepare: the protocol requires that partitions are revoked before the next JoinGroup.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = MembershipState.UNJOINED
        self.generation = OUTSIDE
        self.reader = OUTSIDE
        """Identity at the time of the last assignment. A removed member keeps it until the next assignment: its
        partitions may belong to another member, and only this identity lets the coordinator reject its commits.
        """
        self.rejoin_reason: str | None = "the member is new"
        self.needs_prepare = True
        self.fatal: KafkaError | None = None

    @property
    def is_outside(self) -> bool:
        """Return whether the group does not have this member: it has not joined, or was removed."""
        return self.generation.number == NO_GENERATION or not self.generation.member_id

    @property
    def beats(self) -> bool:
        """Return whether the coordinator expects heartbeats."""
        return self.state in _BEATING

    @property
    def is_joining(self) -> bool:
        """Return whether the member is between two generations."""
        return self.state in (MembershipState.JOINING, MembershipState.SYNCING)

    def request_rejoin(self, reason: str) -> None:
        """Join again at the next opportunity."""
        if self.rejoin_reason is None:
            logger.info("group %s: joining again: %s", self.group_id, reason)
            self.rejoin_reason = reason

    def begin_join(self) -> str:
        """Record that JoinGroup is being sent; return the reason for it."""
        reason, self.rejoin_reason = self.rejoin_reason or "", None
        self.state = MembershipState.JOINING
        return reason

    def joined(self, generation: Generation) -> None:
        """Record the new generation; the assignment is pending."""
        self.generation = generation
        self.state = MembershipState.SYNCING

    def synced(self) -> None:
        """Record the assignment; partitions outside of it must be revoked before the next join."""
        self.state = MembershipState.STABLE
        self.needs_prepare = True
        self.reader = self.generation

    def advanced(self, generation: Generation) -> None:
        """Record a new member epoch of the consumer protocol, which alone revokes nothing."""
        self.generation = self.reader = generation

    def join_failed(self, reason: str) -> None:
        """Try again; the group still has the member."""
        self.state = MembershipState.UNJOINED
        self.request_rejoin(reason)

    def expelled(self, reason: str, *, keep_member_id: bool = False) -> None:
        """Record that the group has removed the member: all its partitions are lost, and it joins as a new member."""
        logger.info("group %s: member %r was removed: %s", self.group_id, self.generation.member_id, reason)
        self.generation = Generation(NO_GENERATION, self.generation.member_id) if keep_member_id else OUTSIDE
        self.state = MembershipState.UNJOINED
        self.needs_prepare = True
        self.rejoin_reason = reason

    def fail(self, error: KafkaError) -> None:
        """Record an error that no retry resolves; the next read raises it."""
        self.fatal = error
        self.state = MembershipState.UNJOINED

    def raise_fatal(self) -> None:
        """Raise the error to the application; a fenced member remains outside, after other errors the next read joins
        again.
        """
        error = self.fatal
        if error is None:
            return
        if error.code is not ErrorCode.FENCED_INSTANCE_ID:
            self.fatal = None
            self.request_rejoin(str(error))
        raise error
