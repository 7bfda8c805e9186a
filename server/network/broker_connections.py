"""The connections of this broker to the other brokers of the cluster, for the requests that brokers send.

Kafka's counterparts are the NetworkClients in ControllerChannelManager and BrokerBlockingSender. There is one
connection per broker, opened for the first request, and opened again after a growing pause when it is lost. A request
is sent once; the caller decides whether to repeat it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from ...clients.connection import BrokerConnection, ConnectionOptions
from ...clients.errors import BrokerUnreachableError
from ...clients.reconnecting_connection import ReconnectingConnection
from ...protocol.apis import ApiKey, api_key_of
from ...protocol.errors import KafkaError
from ...protocol.schema import UNBOUNDED

if TYPE_CHECKING:
    from ...protocol.receive_buffer import FrameMemory
    from ..security.inter_broker_security import InterBrokerSecurity

Endpoint = tuple[str, int]


class BrokerConnections:
    """One connection per broker, opened on demand. Used on the loop's thread only, until `close`."""

    def __init__(
        self,
        broker_id: int,
        endpoint: Callable[[int], Endpoint | None],
        rng: Random,
        *,
        timeout_ms: int,
        outgoing: InterBrokerSecurity | None = None,
        memory: FrameMemory | None = None,
    ) -> None:
        """`endpoint` returns the address of a live broker, None for a broker that is not alive.

        `outgoing` authenticates both ends and records the results; without it there is no authentication. If a
        response takes longer than `timeout_ms`, the connection is closed and all its requests fail. `memory` is as in
        `ConnectionOptions`.
        """
        # Brokers of Kafka use their id as the client id, too.
        self._options = ConnectionOptions(client_id=str(broker_id), request_timeout_ms=timeout_ms, memory=memory)
        self._endpoint = endpoint
        self._outgoing = outgoing
        self._random = rng
        self._peers: dict[int, tuple[Endpoint, ReconnectingConnection]] = {}

    async def version_for(self, broker_id: int, api_key: ApiKey, *, highest: int) -> int:
        """Return the newest version up to `highest` that both brokers support. Raises as `send_request`."""
        connection = await self._connection(broker_id)
        return connection.version_for(api_key, highest=highest)

    async def send_request(
        self, broker_id: int, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED, version: int | None = None
    ) -> Any:
        """Send a request and return its response, in `version` or the newest supported one from `lowest` to `highest`.

        Raises BrokerUnreachableError, ConnectionLostError, RequestTimeoutError, UnsupportedVersionError, or the
        KafkaError of a failed authentication.
        """
        connection = await self._connection(broker_id)
        if version is None:
            version = connection.version_for(api_key_of(request.__class__), lowest=lowest, highest=highest)
        return await connection.send(request, version)

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        for _, peer in self._peers.values():
            peer.close()

    async def _connection(self, broker_id: int) -> BrokerConnection:
        peer, outgoing = self._peer(broker_id), self._outgoing
        if (connection := peer.open_connection) is not None:
            return connection
        if outgoing is None:
            return await peer.connection()
        peer.options = replace(self._options, security=outgoing.security)
        try:
            connection = await peer.connection()
        except KafkaError as error:
            outgoing.record_failure(broker_id, error)
            raise
        outgoing.record_success(broker_id)
        return connection

    def _peer(self, broker_id: int) -> ReconnectingConnection:
        endpoint = self._endpoint(broker_id)
        known = self._peers.get(broker_id)
        if known is not None and known[0] == endpoint:
            return known[1]
        if known is not None:
            # The broker has moved or stopped: another broker may use the old address.
            self._peers.pop(broker_id)[1].close()
        if endpoint is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not alive")
        peer = ReconnectingConnection(*endpoint, self._options, self._random)
        self._peers[broker_id] = endpoint, peer
        return peer
