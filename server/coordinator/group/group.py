"""A classic group: members, generation, protocol, assignment and offsets. State and its rules, without I/O or time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ....protocol.codec import decode_versioned
from ....protocol.consumer_protocol import ConsumerProtocolSubscription
from ....protocol.errors import ErrorCode, ProtocolError
from .member import JoinReply, JoinResult, Member, Protocols, SyncReply, SyncResult
from .offsets import GroupOffsets, OffsetExpiry
from .states import CAN_REBALANCE, COMMIT_ANSWERS, TRANSITIONS, GroupState

CONSUMER_PROTOCOL_TYPE = "consumer"


class Group:
    """Kafka's ClassicGroup. The coordinator decides when something happens; this says what it does to the group.

    Invariants: outside EMPTY and DEAD there is at least one member or one expected; the leader is a member; all members
    have the same protocol type; a static member's instance id leads to exactly one member.
    """

    type_name = "classic"

    __slots__ = (
        "_awaiting_join",
        "_static",
        "_supported",
        "generation",
        "group_id",
        "is_logged",
        "leader_id",
        "leavers",
        "members",
        "newest_member_at",
        "offsets",
        "pending_members",
        "pending_syncs",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.pending_members: set[str] = set()
        """Ids given out that have not joined under them yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.is_logged = False
        """Whether there is a record of it, its offsets aside."""
        self.leavers: list[Callable[[ErrorCode], None]] = []
        """Called when it is durable that the group is empty, for those who left it last."""
        self.newest_member_at = 0.0
        """Loop time at which somebody last came during the initial delay."""
        self.subscribed_topics: frozenset[str] | None = frozenset()
        """What its consumers read; None if that cannot be known."""
        self.offsets = GroupOffsets()
        self._static: dict[str, str] = {}
        self._supported: Counter[str] = Counter()
        self._awaiting_join = 0

    # -- states ----------------------------------------------------------------------------------------------------

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may start now."""
        return self.state in CAN_REBALANCE

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Go over to `state`; AssertionError for a way that the table does not know."""
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state.value} -> {state.value}"
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def state_name(self) -> str:
        """The state as ListGroups calls it."""
        return self.state.value

    @property
    def is_dead(self) -> bool:
        """Whether it is removed here."""
        return self.state is GroupState.DEAD

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is GroupState.EMPTY

    @property
    def can_be_forgotten(self) -> bool:
        """Whether nobody is in it or about to be, so that it may go with its last offset."""
        return self.is_empty and not self.pending_members

    # -- members ---------------------------------------------------------------------------------------------------

    def add(self, member: Member, reply: JoinReply | None = None) -> None:
        """Take a member in; the first one gives the group its protocol type and is the leader."""
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

    def remove(self, member_id: str) -> Member | None:
        """Let a member go; whatever request of it waits must have been answered. Another one becomes leader."""
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
        member: Member,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        reply: JoinReply | None,
    ) -> None:
        """A member joined again, perhaps with other wishes. An older JoinGroup of it that waits is told to try anew."""
        self._supported.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self._supported.update({name for name, _ in protocols})
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        if member.join_reply is not None:
            superseded = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self.answer_join(member, superseded)
        if reply is not None:
            self._await_join(member, reply)

    def replace_static(self, group_instance_id: str, new_member_id: str) -> Member:
        """A static member came back under a new id: it takes the place, and requests under the old id are fenced."""
        old_id = self._static[group_instance_id]
        member = self.members[old_id]
        self.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self.answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_member_id)
        self.rename(member, new_member_id)
        return member

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a static member another id, keeping its place in the order of members."""
        old_id = member.member_id
        self.members = {new_member_id if key == old_id else key: one for key, one in self.members.items()}
        member.member_id = new_member_id
        assert member.group_instance_id is not None
        self._static[member.group_instance_id] = new_member_id
        if self.leader_id == old_id:
            self.leader_id = new_member_id

    def static_member_id(self, group_instance_id: str | None) -> str | None:
        """The present id of a static member."""
        return None if group_instance_id is None else self._static.get(group_instance_id)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE for a member of the group; else why it is not, fencing before all else."""
        if group_instance_id is not None:
            present = self._static.get(group_instance_id)
            if present is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if present == member_id else ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # -- waiting requests ------------------------------------------------------------------------------------------

    def _await_join(self, member: Member, reply: JoinReply) -> None:
        self._awaiting_join += 1
        member.join_reply = reply

    def answer_join(self, member: Member, result: JoinResult) -> None:
        """Answer the JoinGroup of a member, if one waits."""
        reply = member.join_reply
        if reply is not None:
            member.join_reply = None
            self._awaiting_join -= 1
            reply(result)

    def answer_sync(self, member: Member, result: SyncResult) -> None:
        """Answer the SyncGroup of a member, if one waits."""
        reply = member.sync_reply
        if reply is not None:
            member.sync_reply = None
            reply(result)

    def take_joins(self) -> Iterator[tuple[Member, JoinReply]]:
        """All members whose JoinGroup waits, to be answered in their turn. From then on they are not new any more."""
        self._awaiting_join = 0
        for member in self.members.values():
            reply = member.join_reply
            if reply is not None:
                member.join_reply, member.is_answer_due, member.is_new = None, True, False
                yield member, reply

    def take_syncs(self) -> Iterator[tuple[Member, SyncReply]]:
        """All members whose SyncGroup waits, to be answered in their turn."""
        for member in self.members.values():
            reply = member.sync_reply
            if reply is not None:
                member.sync_reply, member.is_answer_due = None, True
                yield member, reply

    @property
    def awaiting_join(self) -> int:
        """How many members have joined the rebalance that is on."""
        return self._awaiting_join

    @property
    def has_all_joined(self) -> bool:
        """Whether nobody is missing: neither a member nor one that has just been given its id."""
        return len(self.members) <= self._awaiting_join and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join again."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- generations -----------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody with these protocols can work together with all members."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self._supported[name] == everybody for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol with most votes among those that all members support; on a tie the one voted for first."""
        everybody = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == everybody}
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter([member.vote(candidates) for member in self.members.values()])
        return votes.most_common(1)[0][0]

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is somebody who has joined; False if nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.is_awaiting_join:
            return True
        joined = next((member for member in self.members.values() if member.is_awaiting_join), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def begin_generation(self, now_ms: int) -> None:
        """The rebalance is over: a new generation of whoever is a member, or of nobody."""
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self._subscriptions()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self._subscriptions()
            self.transition_to(GroupState.EMPTY, now_ms)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Take the leader's assignment; members that it does not name get nothing."""
        for member_id, member in self.members.items():
            member.assignment = assignments.get(member_id, b"")

    def join_result(self, member: Member, *, with_members: bool, skip_assignment: bool = False) -> JoinResult:
        """The present generation as JoinGroup tells it."""
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
        """All members with their metadata, for the leader."""
        name = self.protocol_name
        return tuple((m.member_id, m.group_instance_id, m.metadata(name)) for m in self.members.values())

    def check_generation(self, generation: int) -> ErrorCode:
        """NONE for the present generation."""
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def restore(self, members: Iterable[Member], generation: int, protocol: str | None, leader: str | None) -> None:
        """Take the generation that a coordinator wrote down: STABLE if it had members.

        Without a protocol they get the one they would choose.
        """
        self.generation = generation
        for member in members:
            self.add(member)
        self.protocol_name = self.select_protocol() if protocol is None and self.members else protocol
        self.leader_id = leader if leader in self.members else next(iter(self.members), None)
        self.subscribed_topics = self._subscriptions()
        if self.members:
            self.state = GroupState.STABLE

    # -- what its consumers read -----------------------------------------------------------------------------------

    def is_subscribed(self, topic: str) -> bool:
        """Whether its consumers read the topic, as far as is known."""
        return self.subscribed_topics is not None and topic in self.subscribed_topics

    def _subscriptions(self) -> frozenset[str] | None:
        if not self.members:
            return frozenset() if self.protocol_type == CONSUMER_PROTOCOL_TYPE else None
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol_name is None:
            return None
        # Members mostly subscribe to the same, in the same bytes.
        topics = [_topics(one) for one in {member.metadata(self.protocol_name) for member in self.members.values()}]
        known = [one for one in topics if one is not None]
        return frozenset().union(*known) if len(known) == len(topics) else None

    # -- offsets ---------------------------------------------------------------------------------------------------

    def check_commit(self, member_id: str, group_instance_id: str | None, generation: int, version: int) -> ErrorCode:
        """Whether a commit may be stored. Without a generation it may while the group has no members.

        REBALANCE_IN_PROGRESS is for a member in order that comes at the wrong time.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or group_instance_id is not None:
            error = self.check_member(member_id, group_instance_id) or self.check_generation(generation)
            return error or COMMIT_ANSWERS[self.state]
        return ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit_in_transaction(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Whether a commit may be stored that is part of a transaction, at whatever time it comes (KIP-447)."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and (self.state is GroupState.EMPTY or (not member_id and group_instance_id is None)):
            return ErrorCode.NONE
        return self.check_member(member_id, group_instance_id) or self.check_generation(generation)

    def check_fetch(self, member_id: str | None, generation: int) -> ErrorCode:
        """Anybody may be told the offsets of a classic group, whatever member they say they are."""
        return ErrorCode.NONE

    @property
    def offset_expiry(self) -> OffsetExpiry | None:
        """The time runs from the moment it lost its last member; for a consumer without a group, from the commit.

        It does, too, for topics that no member of a STABLE group reads any more.
        """
        if self.protocol_type is None:
            return OffsetExpiry()
        if self.state is GroupState.EMPTY:
            return OffsetExpiry(self.state_timestamp_ms)
        is_known = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.subscribed_topics is not None
        if self.state is GroupState.STABLE and is_known:
            return OffsetExpiry(keep=self.subscribed_topics or frozenset())
        return None

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost without it."""
        return self.state is GroupState.EMPTY and not self.pending_members and not self.offsets


def _topics(subscription: bytes) -> frozenset[str] | None:
    """The topics of a subscription of any version, all of which begin with what version 0 consists of."""
    try:
        return frozenset(decode_versioned(ConsumerProtocolSubscription, subscription, version=0).topics)
    except ProtocolError:
        return None
