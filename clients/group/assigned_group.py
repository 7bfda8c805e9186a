"""A consumer's part in a group of the newer protocol (KIP-848): the coordinator assigns, members follow.

There is no rebalance in which all stop: a member is told what it shall have, gives up what is not in it, says so with
its next heartbeat, and is told of more once others have given that up.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ...protocol.uuid_text import uuid_text
from ..errors import CommitFailedError
from .consumer_coordinator import ConsumerCoordinator
from .listener import tell
from .member_beats import JOIN_EPOCH, MemberBeats, Target
from .membership import Generation
from .offset_requests import OffsetAndMetadata


class AssignedGroup(ConsumerCoordinator):
    """As `ConsumerCoordinator`, with heartbeats for everything."""

    heartbeats: MemberBeats

    def _new_heartbeats(self) -> MemberBeats:
        return MemberBeats(
            self._client,
            self._link,
            self._member,
            self._settings,
            self._fetcher.data_ready.set,
            topics=lambda: self.subscription.topics,
            owned=lambda: self._assignment.states,
        )

    def needs_read(self, now: float) -> bool:
        return super().needs_read(now) or self.heartbeats.target is not None

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """As `ConsumerCoordinator.commit`; again if the member's epoch has moved on, which costs it no partition."""
        while True:
            sender = self._member.generation
            try:
                return await super().commit(offsets, timeout_ms=timeout_ms)
            except CommitFailedError:
                if self._member.generation == sender or self._member.is_outside:
                    raise

    async def _read(self) -> None:
        self._member.raise_fatal()
        if self._member.rejoin_reason is not None and self.subscription:
            await self._client.retrying(self._match_pattern, timeout_ms=self._timeout_ms)
            if self._member.is_outside:
                await self._prepare()
                self._join()
            else:
                # Who was refused goes on as who it was; if the group has gone on without it, it hears so.
                self._member.rejoin_reason = None
                self._member.synced()
                self.heartbeats.tell()
        target = self.heartbeats.target
        if target is not None:
            await self._take(target)
        self.auto_commit.maybe_start()

    def _join(self) -> None:
        """Be a member by an id of our own choice (KIP-1082), which stays when the group throws it out."""
        member = self._member
        member.begin_join()
        member.generation = Generation(JOIN_EPOCH, member.generation.member_id or uuid_text(self._client.new_id()))
        member.synced()
        self.heartbeats.begin()

    async def _take(self, target: Target) -> None:
        """Give up what is not in the target, take what is new in it, and tell the coordinator."""
        listener, owned = self.subscription.listener, set(self._assignment.states)
        given = await self._client.retrying(lambda: self._named_target(target), timeout_ms=self._timeout_ms)
        if given is None:
            return
        revoked, new = sorted(owned - given), sorted(given - owned)
        if revoked:
            await self._commit_positions(self._settings.session_timeout_ms)
        try:
            if revoked:
                await tell(listener.on_partitions_revoked(revoked))
        finally:
            if self._member.is_outside:
                self._assign(owned - set(revoked))
            else:
                self._assign(sorted(given))
                self.heartbeats.taken(target)
            self.auto_commit.restart()
        if self._member.is_outside:
            return
        await tell(listener.on_partitions_assigned(new))

    async def _named_target(self, target: Target) -> set[TopicPartition] | None:
        """The partitions by name; None if the target is out of date. Raises KafkaError while metadata does not know a
        topic's id.
        """
        if self.heartbeats.target is not target:
            return None
        cluster = self._client.cluster
        named = {(cluster.topic_name(topic_id), index) for topic_id, index in target}
        if any(name is None for name, _ in named):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "the coordinator assigned a topic that is not known yet")
        return {TopicPartition(name, index) for name, index in named if name is not None}
