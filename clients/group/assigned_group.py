"""A consumer's part in a group of the consumer protocol (KIP-848), in which the coordinator assigns partitions.

There is no rebalance during which all members stop: a member receives a target, revokes the partitions outside of it,
reports that with its next heartbeat, and receives more partitions after other members have revoked them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...common.uuid_text import uuid_text
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..errors import CommitFailedError
from .consumer_coordinator import ConsumerCoordinator
from .consumer_heartbeats import JOIN_EPOCH, ConsumerHeartbeats, Target
from .listener import tell
from .membership import Generation
from .offset_requests import OffsetAndMetadata


class AssignedGroup(ConsumerCoordinator):
    """Counterpart of `ConsumerCoordinator` that uses heartbeats for everything."""

    heartbeats: ConsumerHeartbeats

    def _new_heartbeats(self) -> ConsumerHeartbeats:
        return ConsumerHeartbeats(
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
        """Commit as `ConsumerCoordinator.commit`; retry if the member's epoch has increased, which revokes no
        partition.
        """
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
                # A rejected member continues with its identity; if the group has removed it, the next heartbeat reports
                # that.
                self._member.rejoin_reason = None
                self._member.synced()
                self.heartbeats.tell()
        target = self.heartbeats.target
        if target is not None:
            await self._take(target)
        self.auto_commit.maybe_start()

    def _join(self) -> None:
        """Become a member with an id of the client's choice (KIP-1082), which is kept when the group removes the
        member.
        """
        member = self._member
        member.begin_join()
        member.generation = Generation(JOIN_EPOCH, member.generation.member_id or uuid_text(self._client.new_id()))
        member.synced()
        self.heartbeats.begin()

    async def _take(self, target: Target) -> None:
        """Revoke partitions outside of the target, take the new ones, and report to the coordinator."""
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
        """Return the partitions by name; None if the target is outdated. Raises KafkaError while metadata lacks a
        topic's id.
        """
        if self.heartbeats.target is not target:
            return None
        cluster = self._client.cluster
        named = {(cluster.topic_name(topic_id), index) for topic_id, index in target}
        if any(name is None for name, _ in named):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "the coordinator assigned a topic with an unknown id")
        return {TopicPartition(name, index) for name, index in named if name is not None}
