"""Background heartbeats, and the two timers of a member: its session, and the time since the application's last
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.heartbeat import HeartbeatRequest
from ...protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ..client import Client
from ..errors import FencedInstanceIdError, code_of
from ..wakeup import Wakeup
from .coordinator_link import CoordinatorLink
from .membership import Generation, GroupMembership
from .settings import GroupSettings

logger = room_logger("clients.group")

_FIRST_LEAVE_WITH_MEMBERS = 3
_METADATA_RETRY = 1.0


class Heartbeats:
    """One task, `run`; `changed` is called when the application's next read has work to do for the group."""

    def __init__(
        self,
        client: Client,
        link: CoordinatorLink,
        member: GroupMembership,
        settings: GroupSettings,
        changed: Callable[[], None],
    ) -> None:
        self._client = client
        self._link = link
        self._member = member
        self._settings = settings
        self._changed = changed
        self._wakeup = Wakeup()
        self._due = 0.0
        self._answered_at = 0.0
        self._waiters = 0
        self.read_at = 0.0
        """Record that the application has read."""

    # The application

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Return whether the application waits for records, so that it cannot exceed the poll interval."""
        self._waiters += 1
        try:
            yield
        finally:
            self._waiters -= 1
            self.read_at = asyncio.get_running_loop().time()

    @property
    def _read_deadline(self) -> float:
        return inf if self._waiters else self.read_at + self._settings.max_poll_interval_ms / 1000

    # The session

    def begin(self) -> None:
        """Start heartbeats: the member is in a generation."""
        now = asyncio.get_running_loop().time()
        self._answered_at = now
        self._due = now + self._settings.heartbeat_interval_ms / 1000
        self._wakeup.set()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wakeup.clear()
            self._client.maybe_refresh()
            now = loop.time()
            next_at = max(self._client.refresh_due_at, now + _METADATA_RETRY)
            if self._member.beats:
                if self._read_deadline <= now:
                    await self.leave(
                        f"no read for {self._settings.max_poll_interval_ms} ms (max_poll_interval_ms); read fewer "
                        "records at a time or allow more time"
                    )
                elif self._due <= now:
                    await self._beat(now)
                    self._due = loop.time() + self._delay(failed=not self._link.is_known)
                next_at = min(next_at, self._due, self._read_deadline)
            await self._wakeup.wait(next_at)

    def _delay(self, *, failed: bool) -> float:
        return self._client.retry_backoff.delay(1) if failed else self._settings.heartbeat_interval_ms / 1000

    async def _beat(self, now: float) -> None:
        if now > self._answered_at + self._settings.session_timeout_ms / 1000:
            self._link.forget("no heartbeat was answered during a whole session")
            self._answered_at = now
        member, sent = self._member, self._member.generation
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=sent.number,
            member_id=sent.member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        try:
            response = await self._link.send(request, timeout_ms=self._settings.session_timeout_ms)
            code = code_of(response.error_code)
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                self._answered_at = asyncio.get_running_loop().time()
            if member.generation == sent and member.beats:
                self._take_in(code)
        except KafkaError as error:
            logger.debug("group %s: heartbeat failed: %s", self._settings.group_id, error)

    def _take_in(self, code: ErrorCode) -> None:
        member = self._member
        if code is ErrorCode.NONE:
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            member.request_rejoin("the group is rebalancing")
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            member.expelled("the group does not have the member")
        elif code is ErrorCode.ILLEGAL_GENERATION:
            member.expelled("the group has continued with another generation", keep_member_id=True)
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            member.fail(FencedInstanceIdError(self._settings.group_id, self._settings.group_instance_id))
        elif code.retriable:
            self._link.check(code, "Heartbeat")
        else:
            member.fail(KafkaError(code, f"group {self._settings.group_id!r}: Heartbeat"))
        self._changed()

    # Leaving

    async def leave(self, reason: str) -> None:
        """Leave the group."""
        member, left = self._member, self._member.generation
        was_known = bool(left.member_id) and self._link.is_known
        member.expelled(reason)
        self._changed()
        if was_known:
            try:
                await self._say_goodbye(left, reason)
            except KafkaError as error:
                logger.info("group %s: leaving: %s", self._settings.group_id, error)

    async def _say_goodbye(self, left: Generation, reason: str) -> None:
        """Send LeaveGroup, unless this is a static member, which the group retains for a session."""
        if self._settings.group_instance_id is not None:
            return
        request = LeaveGroupRequest(group_id=self._settings.group_id)
        if await self._link.version_for(ApiKey.LEAVE_GROUP) < _FIRST_LEAVE_WITH_MEMBERS:
            request.member_id = left.member_id
        else:
            request.members = [MemberIdentity(member_id=left.member_id, reason=reason[:255])]
        response = await self._link.send(request)
        self._link.check(code_of(response.error_code), "LeaveGroup")
