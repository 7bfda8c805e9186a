"""A consumer's part in its group: the steps between two reads, in their order.

As in Java's consumer, all effects that the application can notice happen during a read: assignment and revocation of
partitions, calls of listeners, automatic commits. Only heartbeats and the exchange of JoinGroup and SyncGroup run in
the background, and their result waits for the next read. A record that was returned is therefore processed when the
next read begins, and no partition is revoked while the application still processes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..assignment import Assignment
from ..client import Client
from ..errors import FencedInstanceIdError
from ..fetcher import Fetcher
from .assignors import is_cooperative, new_assignors
from .auto_commit import AutoCommit
from .coordinator_link import CoordinatorLink
from .group_metadata import GroupMetadata
from .heartbeats import Heartbeats
from .joining import Joined, Joiner
from .listener import tell
from .membership import OUTSIDE, Generation, GroupMembership
from .offset_requests import OffsetAndMetadata
from .offset_store import OffsetStore
from .settings import GroupSettings
from .subscription import Subscription

logger = room_logger("clients.group")

_CLOSE_MS = 30_000
_PASSING = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""Errors that are not retriable, but resolved by another join."""


class ConsumerCoordinator:
    """The group membership of one consumer, used between `start()` and `close()` on its event loop."""

    def __init__(
        self, client: Client, assignment: Assignment, fetcher: Fetcher, settings: GroupSettings, *, timeout_ms: int
    ) -> None:
        self._client = client
        self._assignment = assignment
        self._fetcher = fetcher
        self._settings = settings
        self._timeout_ms = timeout_ms
        self.subscription = Subscription()
        self._assignors = new_assignors(settings.partition_assignment_strategy)
        self._is_cooperative = is_cooperative(list(self._assignors.values()))
        self._member = GroupMembership(settings.group_id)
        self._link = CoordinatorLink(client, settings.group_id)
        self._joiner = Joiner(client, self._link, self._member, settings=settings, assignors=self._assignors)
        self.heartbeats = self._new_heartbeats()
        self._store = OffsetStore(client, self._link, self._member, settings)
        self.auto_commit = AutoCommit(client.cluster, assignment, self.commit, settings)
        self._exchange: asyncio.Task[Joined | None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._step: asyncio.Task[None] | None = None
        self._has_matched = False
        self._group_counts: dict[str, int] | None = None
        self._missing_timer: asyncio.TimerHandle | None = None

    def _new_heartbeats(self) -> Heartbeats:
        return Heartbeats(self._client, self._link, self._member, self._settings, self._fetcher.data_ready.set)

    # Requests of the consumer

    @property
    def generation(self) -> Generation:
        return self._member.generation

    @property
    def metadata(self) -> GroupMetadata:
        """Return the identity of the consumer's assignment, as in Java's consumer; only the group id with manual
        assignment.
        """
        is_by_hand = not self.subscription and self._assignment.states
        number, member_id = OUTSIDE if is_by_hand else self._member.reader
        return GroupMetadata(self._settings.group_id, number, member_id, self._settings.group_instance_id)

    @property
    def needed_topics(self) -> frozenset[str]:
        """Return the topics of the subscription, and for the group's leader the topics of all members."""
        return self.subscription.topics | self._joiner.group_topics | (self._group_counts or {}).keys()

    def start(self) -> None:
        self._client.on_metadata(self._on_metadata)
        self._beating = asyncio.get_running_loop().create_task(self.heartbeats.run())
        self._beating.add_done_callback(self._on_beating_ended)

    def _on_beating_ended(self, task: asyncio.Task[None]) -> None:
        """Keep the unexpected error that ended the heartbeats of an open group; the next read raises it."""
        if not task.cancelled():
            self._step = task
            self._fetcher.data_ready.set()

    def subscribe(self, subscription: Subscription) -> None:
        """Take part from the next read on; the previous subscription is replaced."""
        self.subscription = subscription
        self._has_matched = False
        self._client.watch_all_topics(subscription.pattern is not None)
        self._member.request_rejoin("the subscription changed")
        self._fetcher.data_ready.set()

    async def unsubscribe(self) -> None:
        """Leave the group and revoke its partitions. Raises the exceptions of the listener."""
        await self._leave("the consumer has unsubscribed")

    def needs_read(self, now: float) -> bool:
        """Return whether `read` has work to do. Cheap, because it is called for every record."""
        self.heartbeats.read_at = now
        if self.auto_commit.due_at <= now or self._step is not None:
            return True
        if self._exchange is not None:
            return self._exchange.done()
        return bool(self.subscription) and (self._member.rejoin_reason or self._member.fatal) is not None

    @property
    def next_read_at(self) -> float:
        """Return the time at which `read` will have work to do without other events."""
        return self.auto_commit.due_at

    async def read(self) -> None:
        """Execute the pending steps. Waits for listeners and commits, never for other members.

        Raises exceptions of a listener, and KafkaError for errors that no retry resolves.
        """
        await self._run_step(self._read)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit; raises as `OffsetStore.commit`."""
        if offsets:
            await self._store.commit(offsets, as_member=bool(self.subscription), timeout_ms=timeout_ms)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._store.fetch(partitions, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Commit if automatic commits are enabled, revoke everything, leave. Raises the exceptions of the listener."""
        try:
            await self._commit_positions(_CLOSE_MS)
            await self._leave("the consumer is closing")
        finally:
            if self._missing_timer is not None:
                self._missing_timer.cancel()
            tasks = [task for task in (self._beating, self._exchange, self._step) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Steps: one at a time, each completed once it has begun, even if the read that began it is cancelled

    async def _run_step(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Continue the running step, or else start this one."""
        self._refuse_listeners()
        step = self._step
        if step is None:
            step = self._step = asyncio.get_running_loop().create_task(work())
        try:
            await asyncio.shield(step)
        finally:
            if step.done() and self._step is step:
                self._step = None

    def _refuse_listeners(self) -> None:
        if self._step is not None and self._step is asyncio.current_task():
            raise RuntimeError("a rebalance listener must not read records or close the consumer")

    async def _read(self) -> None:
        self._member.raise_fatal()
        await self._finish_exchange()
        if self._member.rejoin_reason is not None and self._exchange is None and self.subscription:
            await self._begin_exchange()
        self.auto_commit.maybe_start()

    async def _leave(self, reason: str) -> None:
        self._refuse_listeners()
        while self._step is not None:
            with suppress(Exception):
                await self._run_step(self._read)
        if self.subscription:
            await self._run_step(partial(self._give_up, reason))

    async def _give_up(self, reason: str) -> None:
        """Revoke all partitions, then leave the group."""
        listener, owned = self.subscription.listener, list(self._assignment.states)
        exchange, self._exchange = self._exchange, None
        try:
            if owned:
                lost = self._member.is_outside
                await tell((listener.on_partitions_lost if lost else listener.on_partitions_revoked)(owned))
        finally:
            self._assign(())
            self.subscription = Subscription()
            self._group_counts = None
            self._joiner.group_topics = frozenset()
            self._client.watch_all_topics(False)
            self.auto_commit.stop()
            if exchange is not None:
                exchange.cancel()
                self._link.hang_up("a rebalance is in progress, after which no response would arrive")
            await self.heartbeats.leave(reason)

    # A rebalance, in the order of its steps

    async def _begin_exchange(self) -> None:
        member = self._member
        if member.needs_prepare:
            await self._commit_positions(self._settings.session_timeout_ms)
            # Set before the listener is called: if it raises, it counts as called.
            member.needs_prepare = False
            await self._prepare()
        self._exchange = asyncio.get_running_loop().create_task(self._run_exchange())
        self._exchange.add_done_callback(lambda task: self._fetcher.data_ready.set())

    async def _commit_positions(self, timeout_ms: int) -> None:
        """Commit for the last time in a generation."""
        if not (self.subscription and self._member.is_outside):
            await self.auto_commit.finish(timeout_ms=min(self._timeout_ms, timeout_ms))

    async def _prepare(self) -> None:
        """Revoke the partitions that the protocol requires before a join."""
        listener, owned = self.subscription.listener, list(self._assignment.states)
        gone, keep = owned, list[TopicPartition]()
        if self._is_cooperative and not self._member.is_outside:
            topics = self.subscription.topics
            gone = [tp for tp in owned if tp.topic not in topics]
            keep = [tp for tp in owned if tp.topic in topics]
        try:
            if self._member.is_outside:
                if gone:
                    await tell(listener.on_partitions_lost(gone))
            elif gone or not self._is_cooperative:
                await tell(listener.on_partitions_revoked(gone))
        finally:
            self._assign(keep)

    async def _run_exchange(self) -> Joined | None:
        """Join, with retries of temporary errors; None if partitions must be revoked first, or after a fatal error."""
        failures = 0
        while not self._member.needs_prepare:
            try:
                await self._match_pattern()
                joined = await self._joiner.join(self.subscription.topics, self._assignment.states)
            except KafkaError as error:
                failures += 1
                if not self._is_passing(error):
                    self._member.fail(self._named(error))
                    return None
                self._member.join_failed(str(error))
                if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    await asyncio.sleep(self._client.retry_backoff.delay(failures))
            else:
                self.heartbeats.begin()
                return joined
        return None

    async def _match_pattern(self) -> None:
        """Wait until a pattern has been matched with all topics once, before the first subscription is sent."""
        if self.subscription.pattern is not None and not self._has_matched:
            await self._client.refresh_metadata()
            self._has_matched = True

    @staticmethod
    def _is_passing(error: KafkaError) -> bool:
        return error.code.retriable or error.code in _PASSING

    def _named(self, error: KafkaError) -> KafkaError:
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            return FencedInstanceIdError(self._settings.group_id, self._settings.group_instance_id)
        return error

    async def _finish_exchange(self) -> None:
        exchange = self._exchange
        if exchange is None or not exchange.done():
            return
        self._exchange = None
        if exchange.exception() is not None:
            self._member.join_failed("the exchange with the coordinator failed")
        joined = exchange.result()
        self._member.raise_fatal()
        if joined is None or self._member.is_outside:
            return
        self._member.synced()
        is_wanted = {tp.topic for tp in joined.partitions} <= self.subscription.topics
        if joined.topics != self.subscription.topics or not is_wanted:
            self._member.request_rejoin("the assignment does not match the subscription, which may have changed since")
        if is_wanted:
            await self._take_assignment(joined)

    async def _take_assignment(self, joined: Joined) -> None:
        listener = self.subscription.listener
        owned, given = set(self._assignment.states), set(joined.partitions)
        self._group_counts = joined.group_counts
        joined.assignor.on_assignment(joined.partitions, self._member.generation.number)
        revoked = sorted(owned - given)
        try:
            if revoked:
                # Only a cooperative member owns partitions at this point, and has read since the rebalance began.
                # Others receive these partitions in the next round.
                await self._commit_positions(self._settings.session_timeout_ms)
                self._member.request_rejoin(f"{len(revoked)} partitions were revoked")
                await tell(listener.on_partitions_revoked(revoked))
        finally:
            self._assign(joined.partitions)
            self.auto_commit.restart()
        self._on_metadata()
        await tell(listener.on_partitions_assigned(sorted(given - owned)))

    # Metadata

    def _on_metadata(self) -> None:
        """Join again when topics appear, disappear or grow: a member for its pattern, the leader for all topics of the
        group.
        """
        cluster, subscription = self._client.cluster, self.subscription
        if subscription.match(cluster, exclude_internal=self._settings.exclude_internal_topics):
            self._member.request_rejoin("topics that match the pattern were created or deleted")
            self._fetcher.data_ready.set()
        counts = self._group_counts
        if counts is not None and not self._member.is_joining:
            now = {name: len(info.partitions) for name, info in cluster.topics.items()}
            if any(now.get(name, 0) != count for name, count in counts.items()):
                self._member.request_rejoin("topics of the group were created, deleted or extended")
                self._fetcher.data_ready.set()
        self._look_for_missing()

    def _look_for_missing(self) -> None:
        """Request missing topics every second."""
        topics = self._client.cluster.topics
        if self._missing_timer is None and any(n not in topics or topics[n].error for n in self.subscription.topics):
            self._missing_timer = asyncio.get_running_loop().call_later(1.0, self._ask_for_missing)

    def _ask_for_missing(self) -> None:
        self._missing_timer = None
        self._client.refresh_soon()

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._assignment.assign(partitions, self._fetcher.reset_to, from_committed=True)
        self._fetcher.wake()
