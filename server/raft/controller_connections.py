"""Connections to the controllers of a KRaft cluster, by address (Kafka: KafkaNetworkChannel, and the NetworkClient of
NodeToControllerChannelManagerImpl).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from ...clients.connection import BrokerConnection, ConnectionOptions
from ...clients.reconnecting_connection import ReconnectingConnection
from ...common.room_logger import room_logger
from ...protocol.apis import api_key_of
from ...protocol.errors import KafkaError
from ...protocol.schema import UNBOUNDED, Versions

if TYPE_CHECKING:
    from ..security.inter_broker_security import InterBrokerSecurity
    from .observer_state import Endpoint

logger = room_logger("raft")

MAX_CONNECTIONS = 16
"""Controllers of a quorum and their replacements; the connection that is unused for longest is closed."""


class ControllerConnections:
    """One connection per address, opened on demand and after failures with a growing pause. Used on the loop's thread.

    Requests to one controller share its connection and its order: a request that waits needs connections of its own.
    """

    def __init__(
        self, node_id: int, rng: Random, *, timeout_ms: int, outgoing: InterBrokerSecurity | None = None
    ) -> None:
        """`outgoing` is the security of the controllers' listener; without it there is no authentication.

        Without a response in `timeout_ms` the connection is closed and all its requests fail.
        """
        self._options = ConnectionOptions(
            client_id=str(node_id), request_timeout_ms=timeout_ms, connect_timeout_ms=timeout_ms
        )
        self._outgoing = outgoing
        self._random = rng
        self._peers: dict[Endpoint, ReconnectingConnection] = {}
        self._logged_reasons: dict[Endpoint, str] = {}

    async def send_request(self, endpoint: Endpoint, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any:
        """Send a request and return its response, in the newest common version from `lowest` to `highest`.

        Raises BrokerUnreachableError, ConnectionLostError, RequestTimeoutError, UnsupportedVersionError, or the
        KafkaError of a failed authentication.
        """
        connection = await self._connection(endpoint)
        version = connection.version_for(api_key_of(request.__class__), lowest=lowest, highest=highest)
        return await connection.send(request, version)

    async def version_for(self, endpoint: Endpoint, request: type, *, lowest: int = 0, highest: int = UNBOUNDED) -> int:
        """Return the newest common version of a request. Raises as `send_request`."""
        return (await self._connection(endpoint)).version_for(api_key_of(request), lowest=lowest, highest=highest)

    def api_versions(self, endpoint: Endpoint) -> Mapping[int, Versions] | None:
        """Return the versions that a controller supports, by API key; None without an open connection to it."""
        peer = self._peers.get(endpoint)
        connection = None if peer is None else peer.open_connection
        return None if connection is None else connection.api_versions

    def disconnect(self, endpoint: Endpoint) -> None:
        """Close the connection to a controller; its requests fail, and the next request opens a new one."""
        if (peer := self._peers.get(endpoint)) is not None:
            peer.give_up()

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        for peer in self._peers.values():
            peer.close()

    async def _connection(self, endpoint: Endpoint) -> BrokerConnection:
        peer = self._peer(endpoint)
        if (connection := peer.open_connection) is not None:
            return connection
        if self._outgoing is not None:
            peer.options = replace(self._options, security=self._outgoing.security)
        try:
            connection = await peer.connection()
        except KafkaError as error:
            self._log_once(endpoint, str(error))
            raise
        self._logged_reasons.pop(endpoint, None)
        return connection

    def _peer(self, endpoint: Endpoint) -> ReconnectingConnection:
        peer = self._peers.pop(endpoint, None) or ReconnectingConnection(*endpoint, self._options, self._random)
        self._peers[endpoint] = peer  # the order of the dictionary is that of the last use
        if len(self._peers) > MAX_CONNECTIONS:
            unused = next(iter(self._peers))
            self._peers.pop(unused).close()
            self._logged_reasons.pop(unused, None)
        return peer

    def _log_once(self, endpoint: Endpoint, reason: str) -> None:
        """Log a failed connection, once until the reason changes: it is repeated until the controller is back."""
        if self._logged_reasons.get(endpoint) != reason:
            self._logged_reasons[endpoint] = reason
            logger.warning("cannot connect to the controller at %s:%d: %s", *endpoint, reason)
