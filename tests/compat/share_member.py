"""A member of a share group that sends heartbeats from a thread: its requests are the same to each broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

PAUSE_S = 0.2
LIMIT_S = 60.0


class ShareMember:
    """Joins on entry, returns when it has `partitions`, and leaves on exit."""

    def __init__(
        self, bootstrap: str, group_id: str, topics: Sequence[str], *, member_id: str = "member", partitions: int = 1
    ) -> None:
        self._bootstrap = bootstrap
        self._group_id = group_id
        self._topics = list(topics)
        self._member_id = member_id
        self._wanted = partitions
        self._is_assigned = threading.Event()
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._is_assigned.wait(LIMIT_S) or self._failure is not None:
            raise AssertionError(f"the member of {self._group_id} has no assignment: {self._failure}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(LIMIT_S)
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            self._failure = error
            self._is_assigned.set()

    async def _live(self) -> None:
        host, _, port = self._bootstrap.rpartition(":")
        connection = await BrokerConnection.open(host, int(port), ConnectionOptions(client_id="looked-at"))
        try:
            await self._find_coordinator(connection)
            response = await self._beat(connection, 0, self._topics)
            owned = 0
            while not self._is_over.is_set():
                await asyncio.sleep(PAUSE_S)
                response = await self._beat(connection, response.member_epoch)
                if response.assignment is not None:
                    owned = sum(len(topic.partitions) for topic in response.assignment.topic_partitions)
                if owned >= self._wanted:
                    self._is_assigned.set()
            await self._beat(connection, -1)
        finally:
            connection.close()

    async def _find_coordinator(self, connection: BrokerConnection) -> None:
        """Wait until the broker coordinates the group."""
        deadline = asyncio.get_running_loop().time() + LIMIT_S
        while True:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group_id])
            (coordinator,) = (await connection.send(request, 4)).coordinators
            if coordinator.error_code == ErrorCode.NONE:
                return
            assert asyncio.get_running_loop().time() < deadline, coordinator
            await asyncio.sleep(PAUSE_S)

    async def _beat(
        self, connection: BrokerConnection, epoch: int, topics: list[str] | None = None
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        retried = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        while True:
            response: ShareGroupHeartbeatResponse = await connection.send(request, 1)
            if response.error_code not in retried:
                break
            await asyncio.sleep(PAUSE_S)
        assert response.error_code == ErrorCode.NONE, response
        return response
