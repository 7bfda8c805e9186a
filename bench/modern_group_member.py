"""The base class of members of share groups and of streams groups, in which heartbeats carry the assignment."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from typing import Any, Self
from uuid import uuid4

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.common.uuid_text import uuid_text
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest

HEARTBEAT_S = 5.0
"""The default of `group.share.heartbeat.interval.ms` and of `group.streams.heartbeat.interval.ms`."""
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
RETRY_S = 0.1
OPTIONS = ConnectionOptions("bench", request_timeout_ms=120_000)
TEMPORARY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


async def connect(bootstrap: str) -> BrokerConnection:
    """Open a connection to the only broker."""
    host, port = bootstrap.rsplit(":", 1)
    return await BrokerConnection.open(host, int(port), OPTIONS)


class ModernGroupMember(ABC):
    """A member over one connection, with the methods of `bench.members.Member`; `MemberPool` manages either.

    Subclasses build the requests and read the assignment. As in Kafka's clients, a field is in a heartbeat only if it
    has changed since the last one.
    """

    heartbeat_s = HEARTBEAT_S

    def __init__(self, connection: BrokerConnection, group_id: str, topic: str = "test") -> None:
        self._connection = connection
        self.group_id = group_id
        self.topic = topic
        self.member_id = uuid_text(uuid4())
        self.generation = JOIN_EPOCH
        """The epoch of the member."""
        self.synced_at = 0.0
        """When the last assignment with partitions arrived, by `time.perf_counter`; 0 without one."""
        self.heartbeats = 0

    @classmethod
    async def open(cls, bootstrap: str, group_id: str, topic: str = "test") -> Self:
        """Connect a member that has not joined yet."""
        return cls(await connect(bootstrap), group_id, topic)

    async def find_coordinator(self) -> None:
        """Wait until the group has a coordinator."""
        while True:
            request = FindCoordinatorRequest(coordinator_keys=[self.group_id])
            (found,) = (await self._connection.send(request)).coordinators
            if found.error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(RETRY_S)

    async def rejoin(self) -> None:
        """Join the group. Raises RuntimeError for an error that no retry resolves."""
        self.generation, self.synced_at = JOIN_EPOCH, 0.0
        while (error := await self.heartbeat()) is not ErrorCode.NONE:
            if error not in TEMPORARY:
                raise RuntimeError(f"group {self.group_id}: a heartbeat that joins is rejected with {error.name}")
            await asyncio.sleep(RETRY_S)

    async def heartbeat(self) -> ErrorCode:
        """Send one heartbeat, and adopt the epoch and the assignment in its response. Returns the error."""
        response = await self._connection.send(self._request())
        self.heartbeats += 1
        error = ErrorCode(response.error_code)
        if error is ErrorCode.NONE:
            self.generation = response.member_epoch
            if self._take_assignment(response):
                self.synced_at = time.perf_counter()
        return error

    async def send_heartbeats(self, delay_s: float) -> None:
        """Send a heartbeat every `heartbeat_s`, the first after `delay_s`, and join again if the member was removed.

        The times are fixed, as in `bench.members.Member.send_heartbeats`. Raises RuntimeError for an error
        that no retry resolves.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        while True:
            await asyncio.sleep(due - loop.time())
            error = await self.heartbeat()
            if error in REMOVED:
                await self.rejoin()
            elif error is not ErrorCode.NONE and error not in TEMPORARY:
                raise RuntimeError(f"group {self.group_id}: a heartbeat is rejected with {error.name}")
            while due <= loop.time():
                due += self.heartbeat_s

    async def leave(self) -> None:
        """Leave the group."""
        self.generation = LEAVE_EPOCH
        await self._connection.send(self._request())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @abstractmethod
    def _request(self) -> Any:
        """Return the next heartbeat."""

    @abstractmethod
    def _take_assignment(self, response: Any) -> bool:
        """Adopt the assignment of a response, if it has one; return whether it has partitions."""
