"""Heartbeats of the consumer protocol (KIP-848), which carry all requests and assignments of a member.

A heartbeat contains changes since the previous one: the subscription, and the owned partitions after the member has
revoked and taken partitions. The owned partitions are sent even if they are unchanged: a member whose new partition is
revoked before the application reads has nothing to revoke, and the coordinator waits for its report. The response
contains the member's epoch, the interval, and a new assignment, if any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ...protocol.topic_partition import TopicPartition
from ..errors import FencedInstanceIdError, code_of
from .heartbeats import Heartbeats
from .membership import Generation

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
_STATIC_LEAVE_EPOCH = -2
_EXPELLED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})

Target = list[tuple[UUID, int]]


class ConsumerHeartbeats(Heartbeats):
    """`target` is the coordinator's target assignment, until it is applied."""

    _api = "ConsumerGroupHeartbeat"

    def __init__(
        self,
        *arguments: Any,
        topics: Callable[[], Iterable[str]],
        owned: Callable[[], Iterable[TopicPartition]],
    ) -> None:
        super().__init__(*arguments)
        self.target: Target | None = None
        self._topics = topics
        self._owned = owned
        self._told_topics: list[str] | None = None
        self._has_taken = False
        """Whether a target has arrived since the owned partitions were last sent."""
        self._interval = self._settings.heartbeat_interval_ms / 1000
        self._has_news = False
        self._failed = False

    def begin(self) -> None:
        """Join: the first heartbeat contains everything, and is sent immediately."""
        super().begin()
        self.target = None
        self._told_topics = None
        self.tell()

    def taken(self, target: Target) -> None:
        """Record that the member owns exactly the target."""
        if self.target is target:
            self.target = None
        self._has_taken = True
        self.tell()

    def tell(self) -> None:
        """Send the next heartbeat immediately."""
        self._has_news = True
        self._due = asyncio.get_running_loop().time()
        self._wakeup.set()

    def _delay(self, *, failed: bool) -> float:
        if self._has_news and not failed:
            return 0.0
        return super()._delay(failed=True) if failed or self._failed else self._interval

    async def _beat(self, now: float) -> None:
        member, sent = self._member, self._member.generation
        topics = sorted(self._topics())
        request = self._request(sent, topics)
        self._has_news, self._has_taken, self._failed = False, False, True
        try:
            response = await self._link.send(request, timeout_ms=self._settings.session_timeout_ms)
        except KafkaError as error:
            self._told_topics = None
            self._take_in_failure(error)
            return
        if member.generation != sent or not member.beats:
            return
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            self._told_topics = None
            self._take_in_code(code, response.error_message)
            return
        self._failed = False
        self._told_topics = topics
        self._interval = response.heartbeat_interval_ms / 1000
        member.advanced(Generation(response.member_epoch, response.member_id or sent.member_id))
        if response.assignment is not None:
            self.target = [(t.topic_id, p) for t in response.assignment.topic_partitions for p in t.partitions]
            self._changed()

    def _request(self, sender: Generation, topics: list[str]) -> Any:
        """Return the changed fields; all fields when joining, and after a heartbeat with an unknown result."""
        settings = self._settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=sender.member_id,
            member_epoch=sender.number,
            instance_id=settings.group_instance_id,
        )
        if self._told_topics is None:
            request.rack_id = settings.rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.group_remote_assignor
        if self._told_topics != topics:
            request.subscribed_topic_names = topics
        # With a pending target, the owned partitions would be interpreted as the response to it.
        if self._told_topics is None or (self._has_taken and self.target is None):
            by_topic: dict[UUID, list[int]] = {}
            for tp in self._owned():
                by_topic.setdefault(self._client.cluster.topic_id(tp.topic), []).append(tp.partition)
            request.topic_partitions = [TopicPartitions(topic_id=t, partitions=p) for t, p in by_topic.items()]
        return request

    def _take_in_code(self, code: ErrorCode, message: str | None) -> None:
        if code in _EXPELLED:
            self._member.expelled(f"a heartbeat failed with {code.name}", keep_member_id=True)
            self.target = None
        elif code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            self._member.fail(FencedInstanceIdError(self._settings.group_id, self._settings.group_instance_id))
        else:
            try:
                self._link.check(code, message or self._api)
            except KafkaError as error:
                self._take_in_failure(error)
        self._changed()

    def _take_in_failure(self, error: KafkaError) -> None:
        if not error.code.retriable:
            self._member.fail(error)
            self._changed()

    async def _say_goodbye(self, left: Generation, reason: str) -> None:
        """Leave; a static member announces its return."""
        self.target = None
        response = await self._link.send(self._leave_request(left))
        self._link.check(code_of(response.error_code), self._api)

    def _leave_request(self, left: Generation) -> Any:
        instance = self._settings.group_instance_id
        return ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=left.member_id,
            member_epoch=LEAVE_EPOCH if instance is None else _STATIC_LEAVE_EPOCH,
            instance_id=instance,
        )
