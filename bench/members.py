"""Group members over plain connections, thousands in one process. Classic members join, sync and send heartbeats."""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from bench.modern_group_member import ModernGroupMember
from bench.share_group_member import ShareGroupMember
from bench.streams_group_member import StreamsGroupMember
from bench.wire import CLIENT_ID, request_frame

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

HEARTBEAT_S = 3.0
"""The default of heartbeat.interval.ms in every client."""
SESSION_MS, REBALANCE_MS = 45_000, 300_000
CONNECTIONS_PER_BATCH = 100
METADATA = bytes.fromhex("000000000001000474657374ffffffff")
"""A subscription of version 0 to the topic `test`."""
ASSIGNMENT = bytes.fromhex("0000000000010004746573740000000100000000ffffffff")
"""An assignment of version 0 with partition 0 of the topic `test`."""
SIZE = struct.Struct(">i")


class PlainConnection(asyncio.Protocol):
    """One connection, whose responses arrive in the order of the requests."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._received = b""
        self._pending: deque[asyncio.Future[bytes]] = deque()

    @classmethod
    async def open(cls, bootstrap: str) -> "PlainConnection":
        host, port = bootstrap.rsplit(":", 1)
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + SIZE.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            frame, self._received = self._received[:end], self._received[end:]
            response = self._pending.popleft()
            if not response.cancelled():
                response.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        for response in self._pending:
            if not response.cancelled():
                response.set_exception(ConnectionError("the broker closed the connection"))
        self._pending.clear()

    async def send_frame(self, frame: bytes) -> bytes:
        """Send a whole request frame, and return the whole response frame."""
        response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending.append(response)
        self._transport.write(frame)
        return await response

    async def send(self, key: ApiKey, version: int, request: Any, client_id: bytes = CLIENT_ID) -> Any:
        """Send a request of a version without tagged fields, and return its response, both as messages."""
        frame = await self.send_frame(request_frame(key, version, encode_request(request, version), client_id))
        return decode_response(key, version, frame, 8, len(frame))

    def close(self) -> None:
        self._transport.abort()


class Member:
    """A member of a classic group, which `send_heartbeats` keeps in the group."""

    heartbeat_s = HEARTBEAT_S

    def __init__(self, connection: PlainConnection, group_id: str) -> None:
        self._connection = connection
        self._group_id = group_id
        self.member_id = ""
        self.generation = -1
        self.synced_at = 0.0
        """When the assignment of the current generation arrived, by `time.perf_counter`; 0 without one."""
        self.heartbeats = 0

    @classmethod
    async def open(cls, bootstrap: str, group_id: str) -> "Member":
        """Connect a member that has not joined yet."""
        return cls(await PlainConnection.open(bootstrap), group_id)

    async def find_coordinator(self) -> None:
        """Look up the coordinator of the group."""
        await self._connection.send(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=self._group_id))

    async def rejoin(self) -> None:
        """Join and sync until the member has an assignment."""
        while True:
            error = await self._join()
            if error == ErrorCode.NONE:
                return
            if error == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif error not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED):
                await asyncio.sleep(0.1)

    async def _join(self) -> int:
        self.synced_at = 0.0
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
        )
        joined = await self._connection.send(ApiKey.JOIN_GROUP, 5, request)
        if joined.error_code:
            self.member_id = joined.member_id or self.member_id
            return int(joined.error_code)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=one.member_id, assignment=ASSIGNMENT) for one in joined.members
            ],
        )
        synced = await self._connection.send(ApiKey.SYNC_GROUP, 3, sync)
        self.synced_at = time.perf_counter()
        return int(synced.error_code)

    async def send_heartbeats(self, delay_s: float) -> None:
        """Send a heartbeat every three seconds, the first after `delay_s`, and join again after an error.

        The times are fixed. Otherwise members that once send heartbeats late, for lack of processor time, would send
        all later heartbeats together.
        """
        frame, generation = b"", -1
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        while True:
            await asyncio.sleep(due - loop.time())
            if generation != self.generation:
                generation = self.generation
                request = HeartbeatRequest(group_id=self._group_id, generation_id=generation, member_id=self.member_id)
                frame = request_frame(ApiKey.HEARTBEAT, 3, encode_request(request, 3))
            response = await self._connection.send_frame(frame)
            self.heartbeats += 1
            if response[12:14] != b"\0\0":
                await self.rejoin()
            while due < loop.time():
                due += HEARTBEAT_S

    async def leave(self) -> None:
        """Leave the group, as a consumer does when it is closed."""
        request = LeaveGroupRequest(group_id=self._group_id, member_id=self.member_id)
        await self._connection.send(ApiKey.LEAVE_GROUP, 1, request)
        self.member_id = ""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


GroupMember = Member | ModernGroupMember
MEMBERS: Mapping[str, Callable[[str, str], Coroutine[Any, Any, GroupMember]]] = {
    "classic": Member.open,
    "share": ShareGroupMember.open,
    "streams": StreamsGroupMember.open,
}
"""Functions that connect a member of a group of this type, with the arguments `bootstrap` and `group_id`."""


class MemberPool:
    """Many members, whose heartbeats are spread evenly over the interval; `group_type` is a key of `MEMBERS`."""

    def __init__(self, bootstrap: str, group_type: str = "classic") -> None:
        self._bootstrap = bootstrap
        self._open = MEMBERS[group_type]
        self._connected: list[GroupMember] = []
        self._newcomers: list[GroupMember] = []
        self._heartbeat_tasks: dict[GroupMember, asyncio.Task[None]] = {}

    @property
    def members(self) -> Sequence[GroupMember]:
        return list(self._heartbeat_tasks)

    @property
    def heartbeats(self) -> int:
        """Return the number of heartbeats so far."""
        return sum(member.heartbeats for member in self._heartbeat_tasks)

    async def connect(self, group_ids: Sequence[str]) -> None:
        """Connect one member for each group id. It finds its coordinator and waits for `join`."""
        self._newcomers += await self.open_members(group_ids)

    async def open_members(self, group_ids: Sequence[str]) -> list[GroupMember]:
        """Connect one member for each group id, and return them. The caller lets them join, and `close` disconnects."""
        opened: list[GroupMember] = []
        for start in range(0, len(group_ids), CONNECTIONS_PER_BATCH):
            names = group_ids[start : start + CONNECTIONS_PER_BATCH]
            members = await asyncio.gather(*(self._open(self._bootstrap, name) for name in names))
            self._connected += members
            await asyncio.gather(*(member.find_coordinator() for member in members))
            opened += members
        return opened

    async def join(self) -> None:
        """Let all connected members join together, and return when all have assignments."""
        joining, self._newcomers = self._newcomers, []
        await asyncio.gather(*(member.rejoin() for member in joining))
        for index, member in enumerate(joining):
            self._heartbeat_tasks[member] = asyncio.ensure_future(
                member.send_heartbeats(member.heartbeat_s * index / len(joining))
            )

    async def wait_for_assignments(self, generation: int) -> float:
        """Wait for an assignment of at least this generation for each member. Return the time of the last one."""
        return await self.wait_for_newer_assignments(dict.fromkeys(self.members, generation - 1))

    async def wait_for_newer_assignments(self, generations: Mapping[GroupMember, int]) -> float:
        """Wait for an assignment of a newer generation for each of these members. Return the time of the last one."""
        while True:
            if all(one.generation > before and one.synced_at for one, before in generations.items()):
                return max(one.synced_at for one in generations)
            for task in self._heartbeat_tasks.values():
                if task.done():
                    task.result()
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Let all members leave, so that no session expires during a later measurement."""
        members = self.members
        for task in self._heartbeat_tasks.values():
            task.cancel()
        await asyncio.gather(*self._heartbeat_tasks.values(), return_exceptions=True)
        for start in range(0, len(members), CONNECTIONS_PER_BATCH):
            leaving = members[start : start + CONNECTIONS_PER_BATCH]
            await asyncio.gather(*(member.leave() for member in leaving), return_exceptions=True)
        for member in self._connected:
            member.close()
