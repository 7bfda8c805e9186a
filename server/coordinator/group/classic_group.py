"""Kafka's ClassicGroup: the state machine, members, generation, protocol and assignment of a classic group.

State without I/O or time; `ClassicGroupManager` handles requests and timeouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ....protocol.codec import decode_versioned
from ....protocol.consumer_protocol import ConsumerProtocolSubscription
from ....protocol.errors import ErrorCode, ProtocolError
from .group import Group, GroupType
from .offsets import OffsetExpirationCondition
from .response_pacer import PacedReply

CONSUMER_PROTOCOL_TYPE = "consumer"
LAST_GENERATION = 2**31 - 1
"""The largest value in records and messages."""
NO_GENERATION = -1
NO_MEMBER = ""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol (of consumers: assignor) that a member supports, in order of preference."""


class ClassicGroupState(StrEnum):
    """The states of a classic group; the value is the name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    """No members; offsets may remain."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The group waits for its members to join."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The group waits for the assignment of the group leader."""
    STABLE = "Stable"
    """Each member can fetch its assignment."""
    DEAD = "Dead"
    """This broker has unloaded or deleted the group: a member has to find its coordinator again."""


_S = ClassicGroupState

TRANSITIONS: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE, _S.DEAD}),
    _S.PREPARING_REBALANCE: frozenset({_S.COMPLETING_REBALANCE, _S.EMPTY, _S.DEAD}),
    _S.COMPLETING_REBALANCE: frozenset({_S.STABLE, _S.PREPARING_REBALANCE, _S.DEAD}),
    _S.STABLE: frozenset({_S.PREPARING_REBALANCE, _S.DEAD}),
    _S.DEAD: frozenset(),
}
"""The valid next states by state."""

CAN_REBALANCE = frozenset(state for state, following in TRANSITIONS.items() if _S.PREPARING_REBALANCE in following)
"""The states in which a change of the members starts a rebalance."""

HEARTBEAT_ERRORS: dict[ClassicGroupState, ErrorCode] = {
    _S.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _S.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    _S.COMPLETING_REBALANCE: ErrorCode.NONE,
    _S.STABLE: ErrorCode.NONE,
    _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error code for a member of the present generation; with REBALANCE_IN_PROGRESS it has to join again."""

SYNC_ERRORS: dict[ClassicGroupState, ErrorCode] = {
    _S.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _S.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    _S.COMPLETING_REBALANCE: ErrorCode.NONE,
    _S.STABLE: ErrorCode.NONE,
    _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error code for a member of the present generation; NONE waits for the group leader's assignment if necessary."""

COMMIT_ERRORS: dict[ClassicGroupState, ErrorCode] = {
    _S.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _S.PREPARING_REBALANCE: ErrorCode.NONE,
    _S.COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    _S.STABLE: ErrorCode.NONE,
    _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error code for a member of the present generation.

While other members rejoin, a member may commit the offsets that it read under the old assignment.
"""


class JoinResult(NamedTuple):
    """The result of a JoinGroup. A tuple, because its creation is fast: a rebalance ends with thousands of them."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER
    skip_assignment: bool = False
    """Whether the group leader must not compute an assignment: it has restarted as a static member (KIP-814)."""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """(member id, instance id, metadata) of all members in the result of the group leader."""


class SyncResult(NamedTuple):
    """The result of a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """A member in a LeaveGroup; operators name a static member by its instance id alone."""

    member_id: str
    group_instance_id: str | None


class LeaveResult(NamedTuple):
    """The result of a LeaveGroup: an error of the whole request, or the error of each member in its order."""

    error: ErrorCode
    outcomes: Sequence[ErrorCode] = ()


JoinReply = PacedReply[JoinResult]
SyncReply = PacedReply[SyncResult]
LeaveReply = Callable[[LeaveResult], None]


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    """A member of a classic group. `ClassicGroup` keeps sums of `protocols` and `join_reply`, and so changes them."""

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
    """Whether the member has not been part of a generation yet.

    Its first JoinGroup may wait longer than its session timeout: for `NEW_MEMBER_JOIN_TIMEOUT_MS`.
    """
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None
    is_response_queued: bool = False
    """Whether the response to its request is in the queue of the `ResponsePacer`."""

    @property
    def is_awaiting_join(self) -> bool:
        """Whether a JoinGroup of the member waits for the end of the rebalance."""
        return self.join_reply is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the member waits for the coordinator, and so sends no heartbeats."""
        return (
            self.is_response_queued or self.sync_reply is not None or (self.join_reply is not None and not self.is_new)
        )

    @property
    def is_static(self) -> bool:
        """Whether the member keeps its assignment over a restart (KIP-345)."""
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: Container[str]) -> str:
        """Return the first of the member's protocols in `candidates`, of which it supports at least one."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError("the member supports no protocol that all members support")


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup request, apart from its encoding."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool
    """Whether the client joins again with the id in the response (MEMBER_ID_REQUIRED; version 4)."""
    can_skip_assignment: bool
    """Whether a group leader supports `JoinResult.skip_assignment` (version 9)."""
    reply: JoinReply

    def refuse(self, error: ErrorCode, member_id: str | None = None) -> None:
        """Respond with an error."""
        self.reply(JoinResult(error, self.member_id if member_id is None else member_id))


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A SyncGroup request, apart from its encoding; protocol type and name exist since version 5."""

    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]
    reply: SyncReply


class ClassicGroup(Group):
    """The state of a classic group. Changed by its `ClassicGroupManager`, on the loop's thread.

    Invariants: outside EMPTY and DEAD the group has, or expects, at least one member; the group leader is a member; all
    members have the same protocol type; an instance id belongs to exactly one member; `state` changes only by
    `transition_to` and `restore`.
    """

    type = GroupType.CLASSIC

    __slots__ = (
        "_awaiting_join",
        "_static",
        "_supported",
        "generation",
        "is_logged",
        "leader_id",
        "leavers",
        "members",
        "newest_member_at",
        "pending_members",
        "pending_syncs",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id)
        self.state = ClassicGroupState.EMPTY
        self.state_timestamp_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.pending_members: set[str] = set()
        """The member ids in MEMBER_ID_REQUIRED responses whose clients have not joined again yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """The members of this generation that have not sent SyncGroup yet."""
        self.is_logged: bool = False
        self.leavers: list[Callable[[ErrorCode], None]] = []
        """The LeaveGroups of the last members, which are complete when the empty generation is durable."""
        self.newest_member_at = 0.0
        """Loop time of the last join during the initial rebalance delay."""
        self.subscribed_topics: frozenset[str] | None = frozenset()
        self._static: dict[str, str] = {}
        self._supported: Counter[str] = Counter()
        self._awaiting_join = 0

    # -- states ----------------------------------------------------------------------------------------------------

    def is_in(self, *states: ClassicGroupState) -> bool:
        return self.state in states

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may start now."""
        return self.state in CAN_REBALANCE

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        """Change the state. `TRANSITIONS` has the valid changes."""
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state.value} -> {state.value}"
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_dead(self) -> bool:
        return self.state is ClassicGroupState.DEAD

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def can_be_forgotten(self) -> bool:
        return self.is_empty and not self.pending_members

    # -- members ---------------------------------------------------------------------------------------------------

    def add(self, member: ClassicGroupMember, reply: JoinReply | None = None) -> None:
        """Add a member; the first one determines the protocol type and is the group leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        assert member.member_id not in self.members and self.protocol_type == member.protocol_type
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member.member_id
        self._supported.update({name for name, _ in member.protocols})
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_members.discard(member.member_id)
        if reply is not None:
            self._await_join(member, reply)

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        """Remove a member, whose waiting requests must be complete; another member becomes the group leader."""
        self.pending_members.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._supported.subtract({name for name, _ in member.protocols})
        if member.join_reply is not None:
            self._awaiting_join -= 1
        if member.group_instance_id is not None and self._static.get(member.group_instance_id) == member_id:
            del self._static[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def update(
        self,
        member: ClassicGroupMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        reply: JoinReply | None,
    ) -> None:
        """Update a member that joins again; an older JoinGroup of it that waits gets REBALANCE_IN_PROGRESS."""
        self._supported.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self._supported.update({name for name, _ in protocols})
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        if member.join_reply is not None:
            superseded = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self.complete_join_request(member, superseded)
        if reply is not None:
            self._await_join(member, reply)

    def replace_static(self, group_instance_id: str, new_member_id: str) -> ClassicGroupMember:
        """Give a restarted static member its new id; the waiting requests of its old id get FENCED_INSTANCE_ID."""
        old_id = self._static[group_instance_id]
        member = self.members[old_id]
        self.complete_join_request(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self.complete_sync_request(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_member_id)
        self.rename(member, new_member_id)
        return member

    def rename(self, member: ClassicGroupMember, new_member_id: str) -> None:
        """Give a static member another id; keep its position among the members."""
        old_id = member.member_id
        self.members = {new_member_id if key == old_id else key: one for key, one in self.members.items()}
        member.member_id = new_member_id
        assert member.group_instance_id is not None
        self._static[member.group_instance_id] = new_member_id
        if self.leader_id == old_id:
            self.leader_id = new_member_id

    def static_member_id(self, group_instance_id: str | None) -> str | None:
        """Return the present member id of a static member; None for an unknown instance id."""
        return None if group_instance_id is None else self._static.get(group_instance_id)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return NONE for a member of the group, else UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            present = self._static.get(group_instance_id)
            if present is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if present == member_id else ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # -- waiting requests ------------------------------------------------------------------------------------------

    def _await_join(self, member: ClassicGroupMember, reply: JoinReply) -> None:
        self._awaiting_join += 1
        member.join_reply = reply

    def complete_join_request(self, member: ClassicGroupMember, result: JoinResult) -> None:
        """Complete the JoinGroup of a member, if one waits."""
        reply = member.join_reply
        if reply is not None:
            member.join_reply = None
            self._awaiting_join -= 1
            reply(result)

    def complete_sync_request(self, member: ClassicGroupMember, result: SyncResult) -> None:
        """Complete the SyncGroup of a member, if one waits."""
        reply = member.sync_reply
        if reply is not None:
            member.sync_reply = None
            reply(result)

    def take_joins(self) -> Iterator[tuple[ClassicGroupMember, JoinReply]]:
        """Yield the members with a waiting JoinGroup, whose responses are queued now; they are not new any more."""
        self._awaiting_join = 0
        for member in self.members.values():
            reply = member.join_reply
            if reply is not None:
                member.join_reply, member.is_response_queued, member.is_new = None, True, False
                yield member, reply

    def take_syncs(self) -> Iterator[tuple[ClassicGroupMember, SyncReply]]:
        """Yield the members with a waiting SyncGroup, whose responses are queued now."""
        for member in self.members.values():
            reply = member.sync_reply
            if reply is not None:
                member.sync_reply, member.is_response_queued = None, True
                yield member, reply

    @property
    def awaiting_join(self) -> int:
        """The number of members that have joined the rebalance in progress."""
        return self._awaiting_join

    @property
    def has_all_joined(self) -> bool:
        """Whether all members, and all clients with a pending member id, have joined."""
        return len(self.members) <= self._awaiting_join and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- generations -----------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether one of these protocols is supported by all members."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supported[name] == member_count for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes that all members support; on a tie the first one voted for."""
        member_count = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == member_count}
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter([member.vote(candidates) for member in self.members.values()])
        return votes.most_common(1)[0][0]

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the group leader if the present group leader has not joined.

        Return False if no member has joined.
        """
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.is_awaiting_join:
            return True
        joined = next((member for member in self.members.values() if member.is_awaiting_join), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def begin_generation(self, now_ms: int) -> None:
        """End the rebalance: begin a new generation of the present members, or the EMPTY state."""
        # Kafka wraps to negative numbers, which mean "no generation".
        self.generation = self.generation + 1 if self.generation < LAST_GENERATION else 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self._subscriptions()
            self.transition_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self._subscriptions()
            self.transition_to(ClassicGroupState.EMPTY, now_ms)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Set the assignments that the group leader has sent; empty for members without one."""
        for member_id, member in self.members.items():
            member.assignment = assignments.get(member_id, b"")

    def join_result(
        self, member: ClassicGroupMember, *, with_members: bool, skip_assignment: bool = False
    ) -> JoinResult:
        """Return the result of a JoinGroup for the present generation."""
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            skip_assignment,
            self.member_list() if with_members else (),
        )

    def member_list(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Return all members with their metadata, for the group leader."""
        name = self.protocol_name
        return tuple((m.member_id, m.group_instance_id, m.metadata(name)) for m in self.members.values())

    def check_generation(self, generation: int) -> ErrorCode:
        """Return NONE for the present generation, else ILLEGAL_GENERATION."""
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def check_sync(self, syncing: SyncRequest) -> ErrorCode:
        """Return NONE for a SyncGroup of a member of the present generation with the group's protocol."""
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.check_member(syncing.member_id, syncing.group_instance_id)
        error = error or self.check_generation(syncing.generation)
        if error:
            return error
        if syncing.protocol_type is not None and syncing.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if syncing.protocol_name is not None and syncing.protocol_name != (self.protocol_name or ""):
            # While a group prepares a rebalance, its protocol is still that of the generation in the request.
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def sync_result(self, member: ClassicGroupMember) -> SyncResult:
        """Return the response to a member's SyncGroup: its assignment."""
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def restore(
        self, members: Iterable[ClassicGroupMember], generation: int, protocol: str | None, leader: str | None
    ) -> None:
        """Restore the generation in a record: STABLE if it has members.

        Without a protocol, `select_protocol` determines it.
        """
        self.generation = generation
        for member in members:
            self.add(member)
        self.protocol_name = self.select_protocol() if protocol is None and self.members else protocol
        self.leader_id = leader if leader in self.members else next(iter(self.members), None)
        self.subscribed_topics = self._subscriptions()
        if self.members:
            # The initial state, as in the constructor of Kafka's ClassicGroup: `TRANSITIONS` has changes after that.
            self.state = ClassicGroupState.STABLE

    def _subscriptions(self) -> frozenset[str] | None:
        if not self.members:
            return frozenset() if self.protocol_type == CONSUMER_PROTOCOL_TYPE else None
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol_name is None:
            return None
        # Most members have the same subscription, in the same bytes: decode each distinct subscription once.
        topics = [_topics(one) for one in {member.metadata(self.protocol_name) for member in self.members.values()}]
        known = [one for one in topics if one is not None]
        return frozenset().union(*known) if len(known) == len(topics) else None

    # -- offsets ---------------------------------------------------------------------------------------------------

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, version: int
    ) -> ErrorCode:
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is ClassicGroupState.EMPTY:
            return ErrorCode.NONE  # a consumer with manual assignment, or an operator
        if generation >= 0 or member_id or group_instance_id is not None:
            error = self.check_member(member_id, group_instance_id) or self.check_generation(generation)
            return error or COMMIT_ERRORS[self.state]
        return ErrorCode.UNKNOWN_MEMBER_ID

    def validate_transactional_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return NONE for a commit of a valid member, also during a rebalance (KIP-447)."""
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and (self.state is ClassicGroupState.EMPTY or (not member_id and group_instance_id is None)):
            return ErrorCode.NONE
        return self.check_member(member_id, group_instance_id) or self.check_generation(generation)

    def validate_offset_fetch(self, member_id: str | None, generation: int) -> ErrorCode:
        """Return NONE: classic groups do not validate members that fetch offsets."""
        return ErrorCode.NONE

    @property
    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        """The retention begins when the group loses its last member; for a simple group, with each commit.

        In a STABLE group, it begins with each commit for topics that no member reads.
        """
        if self.protocol_type is None:
            return OffsetExpirationCondition()
        if self.state is ClassicGroupState.EMPTY:
            return OffsetExpirationCondition(self.state_timestamp_ms)
        is_known = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.subscribed_topics is not None
        if self.state is ClassicGroupState.STABLE and is_known:
            return OffsetExpirationCondition(keep=self.subscribed_topics or frozenset())
        return None


def _topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription, None if it is malformed; all versions begin with the fields of version 0."""
    try:
        return frozenset(decode_versioned(ConsumerProtocolSubscription, subscription, version=0).topics)
    except ProtocolError:
        return None
