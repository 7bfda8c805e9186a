"""A connection to the coordinator of a group or a transactional id, with another lookup after it has moved.

Requests use a separate connection: a JoinGroup is answered when the group is complete, and neither fetches nor metadata
must wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey, api_key_of
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import UNBOUNDED
from ..client import Client
from ..cluster import BrokerNode
from .find_coordinators import GROUP, find_coordinators

logger = room_logger("clients.group")

_NEEDED_OPERATIONS = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Read",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write",
}
"""The operations that the requests of members and of transactional producers need on their group or id."""
MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""The broker is not the coordinator, or not any more."""


class CoordinatorLink:
    """The coordinator of one group, or of one key of another type."""

    def __init__(self, client: Client, key: str, key_type: int = GROUP) -> None:
        self._client = client
        self._key = key
        self._key_type = key_type
        self._subject = f"{'group' if key_type == GROUP else 'transactional id'} {key!r}"
        self._node: BrokerNode | None = None
        self.features: Mapping[str, int] = {}
        """Feature levels of the cluster, as the last coordinator returned them."""
        self._lock = asyncio.Lock()

    @property
    def is_known(self) -> bool:
        return self._node is not None

    def forget(self, reason: object) -> None:
        """Look up the coordinator before the next request."""
        if self._node is not None:
            logger.info("%s: coordinator %s:%d: %s", self._subject, self._node.host, self._node.port, reason)
            self._node = None

    def hang_up(self, reason: str) -> None:
        """Close the connection, if there is one; the next request opens another."""
        if self._node is not None:
            self._client.close_connection_to_coordinator(self._node, reason)

    async def send(
        self, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED, timeout_ms: int | None = None
    ) -> Any:
        """Send once, in the newest common version within the bounds. Raises KafkaError."""
        node = await self._find()
        try:
            connection = await self._client.connection_to_coordinator(node)
            self.features = connection.features
            version = connection.version_for(api_key_of(request.__class__), lowest=lowest, highest=highest)
            return await connection.send(request, version, timeout_ms=timeout_ms)
        except KafkaError as error:
            if error.code.retriable:
                self.forget(error)
            raise

    async def version_for(self, api_key: ApiKey, *, highest: int = UNBOUNDED) -> int:
        """Return the version in which `send` would send. Raises KafkaError."""
        connection = await self._client.connection_to_coordinator(await self._find())
        return connection.version_for(api_key, highest=highest)

    def check(self, code: ErrorCode, what: str) -> None:
        """Raise the coordinator's error, unless it is NONE; forget a coordinator that has moved."""
        if code is ErrorCode.NONE:
            return
        reason = f"{self._subject}: {what}"
        if code in _NEEDED_OPERATIONS:
            reason = f"{reason}: {self._client.describe_denial(_NEEDED_OPERATIONS[code], self._subject)}"
        error = KafkaError(code, reason)
        if code in MOVED:
            self.forget(error)
        raise error

    async def _find(self) -> BrokerNode:
        async with self._lock:
            if self._node is None:
                found = (await find_coordinators(self._client, [self._key], self._key_type))[self._key]
                if isinstance(found, KafkaError):
                    raise found
                self._node = found
            return self._node
