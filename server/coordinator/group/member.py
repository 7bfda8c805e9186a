"""A member of a classic group: what it offers, what it was given, and whether a request of it waits."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....protocol.errors import ErrorCode
from .answers import Later

NO_GENERATION = -1
NO_MEMBER = ""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each assignor or the like that a member can work with, the best liked first."""


class JoinResult(NamedTuple):
    """The answer to a JoinGroup. A tuple is made fastest, and the end of a rebalance makes thousands of them."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER
    skip_assignment: bool = False
    """The leader is back and shall not assign anew (KIP-814)."""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """(member id, instance id, metadata) of all, for the leader."""


class SyncResult(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Leaver(NamedTuple):
    """Who leaves: a member by its id, a static one also by its instance id alone, which is how an operator does it."""

    member_id: str
    group_instance_id: str | None


class LeaveResult(NamedTuple):
    """The answer to a LeaveGroup: an error of the whole, or what became of each in the order of the request."""

    error: ErrorCode
    outcomes: Sequence[ErrorCode] = ()


JoinReply = Later[JoinResult]
SyncReply = Later[SyncResult]
LeaveReply = Callable[[LeaveResult], None]


@dataclass(slots=True, eq=False)
class Member:
    """State only; `Group` keeps the sums over its members, so change `protocols` and `join_reply` through it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Has not been part of a generation yet: it may wait longer than its session for that, yet not for ever."""
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None
    is_answer_due: bool = False
    """Its request is answered as soon as it is its turn."""

    @property
    def is_awaiting_join(self) -> bool:
        """Whether a JoinGroup of it waits for the rebalance to end."""
        return self.join_reply is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it is the coordinator that owes the next step: no heartbeats are to be expected then."""
        return self.is_answer_due or self.sync_reply is not None or (self.join_reply is not None and not self.is_new)

    @property
    def is_static(self) -> bool:
        """Whether it keeps its place over a restart (KIP-345)."""
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it says about itself under a protocol; empty if it does not know it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: Container[str]) -> str:
        """The protocol it likes best among `candidates`, of which it supports at least one."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError("it was let in without a protocol that all support")
