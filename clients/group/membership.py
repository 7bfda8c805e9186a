"""What a member knows of its membership: state, generation, and whether it has to join again. No I/O, no time."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from .assignor import NO_GENERATION

logger = room_logger("clients.group")


class MembershipState(Enum):
    """How far joining has come."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class Generation(NamedTuple):
    """One round of a group, as one member takes part in it."""

    number: int
    member_id: str


OUTSIDE = Generation(NO_GENERATION, "")
_BEATING = frozenset({MembershipState.SYNCING, MembershipState.STABLE})


class GroupMembership:
    """Starts outside, wanting in.

    needs_prepare: partitions are to be given up, by the rules of the protocol, before the next JoinGroup.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = MembershipState.UNJOINED
        self.generation = OUTSIDE
        self.reader = OUTSIDE
        """As whom the application was given what it reads. Who is thrown out keeps it until partitions come anew: what
        was read before is another's now, and only by this can the coordinator tell."""
        self.rejoin_reason: str | None = "the member is new"
        self.needs_prepare = True
        self.fatal: KafkaError | None = None

    @property
    def is_outside(self) -> bool:
        """Whether the group does not count on this member: it never was in it, or was thrown out."""
        return self.generation.number == NO_GENERATION or not self.generation.member_id

    @property
    def beats(self) -> bool:
        """Whether the coordinator expects heartbeats."""
        return self.state in _BEATING

    @property
    def is_joining(self) -> bool:
        """Whether the member has given up one generation and is not in the next yet."""
        return self.state in (MembershipState.JOINING, MembershipState.SYNCING)

    def request_rejoin(self, reason: str) -> None:
        """Join again at the next opportunity."""
        if self.rejoin_reason is None:
            logger.info("group %s: joining again: %s", self.group_id, reason)
            self.rejoin_reason = reason

    def begin_join(self) -> str:
        """A JoinGroup is about to be sent; returns the reason to be told."""
        reason, self.rejoin_reason = self.rejoin_reason or "", None
        self.state = MembershipState.JOINING
        return reason

    def joined(self, generation: Generation) -> None:
        """The group has a generation with us in it; the assignment is still to come."""
        self.generation = generation
        self.state = MembershipState.SYNCING

    def synced(self) -> None:
        """The assignment is here; what it takes away must be given up before the next join."""
        self.state = MembershipState.STABLE
        self.needs_prepare = True
        self.reader = self.generation

    def advanced(self, generation: Generation) -> None:
        """The newer protocol's coordinator has given the member another epoch, which alone takes nothing from it."""
        self.generation = self.reader = generation

    def join_failed(self, reason: str) -> None:
        """Try again; the group still knows the member."""
        self.state = MembershipState.UNJOINED
        self.request_rejoin(reason)

    def expelled(self, reason: str, *, keep_member_id: bool = False) -> None:
        """The group goes on without us: everything owned is lost, and the next join is a new beginning."""
        logger.info("group %s: member %r is out: %s", self.group_id, self.generation.member_id, reason)
        self.generation = Generation(NO_GENERATION, self.generation.member_id) if keep_member_id else OUTSIDE
        self.state = MembershipState.UNJOINED
        self.needs_prepare = True
        self.rejoin_reason = reason

    def fail(self, error: KafkaError) -> None:
        """No retry mends it: the application is told at its next read."""
        self.fatal = error
        self.state = MembershipState.UNJOINED

    def raise_fatal(self) -> None:
        """Tell the application; whoever was fenced stays out, after other errors the next read joins again."""
        error = self.fatal
        if error is None:
            return
        if error.code is not ErrorCode.FENCED_INSTANCE_ID:
            self.fatal = None
            self.request_rejoin(str(error))
        raise error
