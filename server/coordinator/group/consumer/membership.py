"""Members of the consumer protocol coming, going and staying: ConsumerGroupHeartbeat on one group.

Everything runs on the loop's thread and to its end. A change is in memory as soon as it is in the log; who asked for it
is answered once it is durable, in the loop's next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from .....protocol.errors import ErrorCode, KafkaError
from .....protocol.room_logger import room_logger
from .....protocol.uuid_text import uuid_text
from ...coordinator_log import TOO_LARGE, WRITE_ERRORS, CoordinatorLog, Entry, ignore
from ..sessions import Sessions
from .assignment import NOTHING, is_within
from .assignor import offered
from .beat import NOT_GIVEN, Beat, BeatReply, BeatResult
from .change import Change
from .group import ConsumerGroup
from .member import STATIC_LEAVE_EPOCH, ConsumerMember
from .progress import GroupProgress
from .states import MemberState
from .topic_pattern import topics_of

if TYPE_CHECKING:
    from ....config.broker_config import BrokerConfig
    from ....config.dynamic_config import DynamicConfig
    from ....metadata.metadata_cache import MetadataCache
    from ....runtime.ports import Ports

logger = room_logger("groups")

RETRY_MS = 500
"""When to try again to remove a member whose removal could not be written."""

Done = Callable[[ErrorCode], None]


class ConsumerMembership:
    """The rules by which members of the consumer protocol come and go. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        log: CoordinatorLog,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        *,
        metadata: MetadataCache,
        partition_of: Callable[[str], int],
    ) -> None:
        self._config = config
        self._dynamic_config = dynamic_config
        self._log = log
        self._now_ms = ports.now_ms
        self._token_bytes = ports.token_bytes
        self._loop = loop
        self._partition_of = partition_of
        self.let_go: Callable[[ConsumerGroup, list[str], Done], bool] = self.remove
        """Removes members and sees what becomes of the group; returns whether that is in the log."""
        self.progress = GroupProgress(metadata)
        self.sessions: Sessions[ConsumerGroup] = Sessions(loop, self._session_expired)
        self.joins: Sessions[ConsumerGroup] = Sessions(loop, self._late_to_join)
        self.syncs: Sessions[ConsumerGroup] = Sessions(loop, self._late_to_sync)
        """These two are for members of the classic protocol."""
        self._revocations: Sessions[ConsumerGroup] = Sessions(loop, self._revocation_expired)
        self._deadlines = (self.sessions, self.joins, self.syncs, self._revocations)

    # -- settings --------------------------------------------------------------------------------------------------

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members shall be heard of."""
        own = self._dynamic_config.group_value(group_id, "consumer.heartbeat.interval.ms")
        return self._config.group_consumer_heartbeat_interval_ms if own is None else own

    def session_timeout_ms(self, group_id: str) -> int:
        """How long members may be silent."""
        own = self._dynamic_config.group_value(group_id, "consumer.session.timeout.ms")
        return self._config.group_consumer_session_timeout_ms if own is None else own

    @property
    def assignors(self) -> list[str]:
        """The assignors that members may ask for, the default first."""
        return offered(self._config.group_consumer_assignors)

    @property
    def most_members(self) -> int:
        return self._config.group_consumer_max_size

    # -- heartbeats ------------------------------------------------------------------------------------------------

    def check(self, beat: Beat) -> None:
        """Refuse what no group could take.

        Raises KafkaError INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION.
        """
        beat.check()
        names = self.assignors
        if beat.assignor is not None and beat.assignor not in names:
            reason = f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {', '.join(names)}."
            raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, reason)
        if beat.regex:
            topics_of(beat.regex, ())

    def heartbeat(
        self, group: ConsumerGroup, beat: Beat, reply: BeatReply, *, change: Change, before: Iterable[Entry] = ()
    ) -> bool:
        """Let a member join or be heard of; returns whether the group is as `change` has it from now on.

        `before` are records to be written in front of it. Raises KafkaError.
        """
        if not beat.is_joining:
            member = group.known_member(beat.member_id, beat.instance_id)
            self._check_epoch(group, member, beat)
            if beat.says_nothing_new and self._has_nothing_to_do(group, member):
                self.sessions.restart(group, member.member_id, self.session_timeout_ms(group.group_id))
                return self._answer(change, beat, reply, member=member, updated=member)
        else:
            member = self._admit(change, beat)
        updated = self.progress.advance(
            change, _with_wishes(member, beat), beat.owned, self.assignors, self._now_ms(), may_see=beat.may_see
        )
        return self._answer(change, beat, reply, member=member, updated=updated, before=before)

    def _has_nothing_to_do(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        return member.has_reached(group.epoch) and self.progress.is_up_to_date(group, member, self._now_ms())

    def _admit(self, change: Change, beat: Beat) -> ConsumerMember:
        """Who joins: somebody new, a static member in the place it had, or one that was told to begin anew."""
        group = change.group
        if len(group.members) >= self.most_members and beat.member_id not in group.members:
            reason = f"The consumer group has reached its maximum capacity of {self.most_members} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
        member_id = beat.member_id or self.new_member_id()
        present = group.static_member(beat.instance_id)
        if present is not None:
            return self._readmit_static(change, present, member_id)
        member = group.members.get(member_id)
        if member is None:
            return ConsumerMember(member_id)
        self._check_epoch(group, member, beat)
        return member

    def _readmit_static(self, change: Change, present: ConsumerMember, member_id: str) -> ConsumerMember:
        group = change.group
        is_itself = present.member_id == member_id and member_id in group.fenced
        if present.classic is None and not present.has_left_for_now and not is_itself:
            reason = f"Instance id {present.instance_id} is owned by member {present.member_id}."
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, reason)
        group.fenced.discard(present.member_id)
        return self.progress.replace_member(change, present, member_id)

    def new_member_id(self) -> str:
        """An id for a member that brought none."""
        return uuid_text(self._random_uuid())

    def _random_uuid(self) -> UUID:
        return UUID(bytes=self._token_bytes(16), version=4)

    def _check_epoch(self, group: ConsumerGroup, member: ConsumerMember, beat: Beat) -> None:
        """Raises KafkaError FENCED_MEMBER_EPOCH for a member that is not where it thinks it is.

        It is let in at its previous epoch as long as it has nothing but its own: an answer may have got lost. Who was
        told so before may begin anew: it has given everything up.
        """
        if beat.epoch == member.epoch:
            return
        if beat.is_joining and member.member_id in group.fenced:
            group.fenced.discard(member.member_id)
            return
        is_late = beat.epoch == member.previous_epoch and beat.owned is not None
        if beat.epoch < member.epoch and is_late and is_within(beat.owned or NOTHING, member.assigned):
            return
        group.fenced.add(member.member_id)
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch {beat.epoch} is not {member.epoch}, the one known by the group coordinator. "
            "The member must abandon all its partitions and rejoin.",
        )

    def _answer(
        self,
        change: Change,
        beat: Beat,
        reply: BeatReply,
        *,
        member: ConsumerMember,
        updated: ConsumerMember,
        before: Iterable[Entry] = (),
    ) -> bool:
        group = change.group
        is_news = beat.is_full or updated.assigned != member.assigned
        result = BeatResult(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self.heartbeat_interval_ms(group.group_id),
            assignment=updated.assigned if is_news else None,
        )

        def done(outcome: ErrorCode) -> None:
            reply(result if outcome is ErrorCode.NONE else BeatResult(outcome))

        if not self.write(change, done, before=before):
            return False
        self.sessions.restart(group, updated.member_id, self.session_timeout_ms(group.group_id))
        self.joins.end(group, updated.member_id)
        self.syncs.end(group, updated.member_id)
        self._watch_revocation(group, member, updated)
        return True

    def _watch_revocation(self, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember) -> None:
        if updated.state is not MemberState.UNREVOKED_PARTITIONS:
            self._revocations.end(group, updated.member_id)
        elif updated.revoking is not member.revoking:
            self._revocations.restart(group, updated.member_id, updated.rebalance_timeout_ms)

    # -- leaving ---------------------------------------------------------------------------------------------------

    def leave(self, group: ConsumerGroup, beat: Beat, reply: BeatReply) -> None:
        """A member goes, or a static one for now. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        member = group.known_member(beat.member_id, beat.instance_id)
        result = BeatResult(member_id=member.member_id, epoch=beat.epoch)

        def done(outcome: ErrorCode) -> None:
            reply(result if outcome is ErrorCode.NONE else BeatResult(outcome))

        if beat.epoch == STATIC_LEAVE_EPOCH:
            change = Change(group)
            change.put_member(replace(member, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING))
            if self.write(change, done):
                self._revocations.end(group, member.member_id)
            return
        logger.info("group %r: %r leaves", group.group_id, member.member_id)
        self.let_go(group, [member.member_id], done)

    def remove(self, group: ConsumerGroup, member_ids: list[str], done: Done) -> bool:
        """Members are gone; returns whether that is in the log."""
        change = Change(group)
        self.progress.remove(change, member_ids)
        return self.write(change, done)

    def _forget(self, group: ConsumerGroup, member_id: str) -> None:
        """Nothing is expected of a member any more."""
        group.fenced.discard(member_id)
        for deadlines in self._deadlines:
            deadlines.end(group, member_id)

    def _session_expired(self, group: ConsumerGroup, member_id: str) -> None:
        self.fence(group, member_id, "its session is over")

    def _late_to_join(self, group: ConsumerGroup, member_id: str) -> None:
        self.fence(group, member_id, "it did not join again in time")

    def _late_to_sync(self, group: ConsumerGroup, member_id: str) -> None:
        self.fence(group, member_id, "it did not ask for its assignment in time")

    def _revocation_expired(self, group: ConsumerGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None and member.state is MemberState.UNREVOKED_PARTITIONS:
            self.fence(group, member_id, "it did not let go of partitions in time")

    def fence(self, group: ConsumerGroup, member_id: str, reason: str) -> None:
        """A member is out, whatever it thinks."""
        if group.is_dead or member_id not in group.members:
            return
        logger.info("group %r: %r is out: %s", group.group_id, member_id, reason)
        if not self.let_go(group, [member_id], ignore):
            self.sessions.restart(group, member_id, RETRY_MS)

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, change: Change, done: Done, *, before: Iterable[Entry] = ()) -> bool:
        """Append a change, or take it back if that cannot be; returns which. `done` gets the outcome as it is durable.

        Without anything to write it waits for what was written of the group before: nobody is told what is not
        certain yet.
        """
        group = change.group
        entries = [*before, *change.entries()]
        if not entries:
            if group.writes:
                group.writes[-1].append(done)
            else:
                done(ErrorCode.NONE)
            return True
        if not self.append(group, entries, done):
            change.undo()
            return False
        for member_id in change.gone:
            self._forget(group, member_id)
        return True

    def append(self, group: ConsumerGroup, entries: list[Entry], done: Done) -> bool:
        """Append records of a group."""
        waiting = [done]

        def written(outcome: ErrorCode) -> None:
            if waiting in group.writes:
                group.writes.remove(waiting)
            for one in waiting:
                self._loop.call_soon(one, _ERRORS.get(outcome, outcome))

        group.writes.append(waiting)
        index = self._partition_of(group.group_id)
        return self._log.append(index, entries, written, timeout_ms=self._config.offsets_commit_timeout_ms)

    # -- the coordinator's own comings and goings ------------------------------------------------------------------

    def resume(self, group: ConsumerGroup) -> None:
        """A group was loaded: its members have their full timeouts from now on."""
        for member in group.members.values():
            timeout_ms = self.session_timeout_ms(group.group_id)
            if member.classic is not None:
                timeout_ms = member.classic.session_timeout_ms
            self.sessions.restart(group, member.member_id, timeout_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self._revocations.restart(group, member.member_id, member.rebalance_timeout_ms)

    def unload(self, group: ConsumerGroup) -> None:
        """This broker does not coordinate the group any more, or it is another kind of group now, or deleted."""
        for deadlines in self._deadlines:
            deadlines.end_all(group)
        group.is_dead = True

    def close(self) -> None:
        """Expect nothing of anybody."""
        for deadlines in self._deadlines:
            deadlines.close()


def _with_wishes(member: ConsumerMember, beat: Beat) -> ConsumerMember:
    """The member with what it says of itself now."""
    wishes = (
        member.instance_id if beat.instance_id is None else beat.instance_id,
        member.rack_id if beat.rack_id is None else beat.rack_id,
        member.rebalance_timeout_ms if beat.rebalance_timeout_ms == NOT_GIVEN else beat.rebalance_timeout_ms,
        member.assignor if beat.assignor is None else beat.assignor,
        member.topics if beat.topics is None else beat.topics,
        member.regex if beat.regex is None else beat.regex,
    )
    instance_id, rack_id, rebalance_timeout_ms, assignor, topics, regex = wishes
    wanted = replace(
        member,
        instance_id=instance_id,
        rack_id=rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        topics=topics,
        regex=regex,
        client_id=beat.client_id,
        client_host=beat.client_host,
        classic=None,
    )
    return member if wanted == member else wanted


_ERRORS = {
    **WRITE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    **dict.fromkeys(TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
"""What a member is told when a change of its group could not be written."""
