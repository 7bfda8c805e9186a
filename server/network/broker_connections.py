"""This broker's connections to the other brokers of the cluster: the clients' own, for requests that brokers send.

Kafka's counterparts are the NetworkClients inside ControllerChannelManager and BrokerBlockingSender. To each broker
there is one connection, opened when it is first needed; a lost one is opened again after a growing pause. A request is
sent once: whether to repeat it is for the asker to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from ...clients.connection import BrokerConnection, ConnectionOptions
from ...clients.errors import BrokerUnreachableError
from ...clients.peer import Peer
from ...protocol.apis import ApiKey, api_key_of
from ...protocol.errors import KafkaError
from ...protocol.schema import UNBOUNDED

if TYPE_CHECKING:
    from ..security.outgoing import OutgoingSecurity

Endpoint = tuple[str, int]


class BrokerConnections:
    """Loop-thread only; use until `close`."""

    def __init__(
        self,
        broker_id: int,
        endpoint: Callable[[int], Endpoint | None],
        rng: Random,
        *,
        timeout_ms: int,
        outgoing: OutgoingSecurity | None = None,
    ) -> None:
        """`endpoint` knows where a live broker is reached, None of one that is not alive.

        `outgoing` says how both ends prove who they are, and hears whether they did; without it they do not.
        A response that is not there after `timeout_ms` ends the connection, with all that waits on it.
        """
        # Kafka's brokers name themselves so to each other.
        self._options = ConnectionOptions(client_id=str(broker_id), request_timeout_ms=timeout_ms)
        self._endpoint = endpoint
        self._outgoing = outgoing
        self._random = rng
        self._peers: dict[int, tuple[Endpoint, Peer]] = {}

    async def version_for(self, broker_id: int, api_key: ApiKey, *, highest: int) -> int:
        """The newest version, `highest` at most, that both sides speak. Raises as `ask`."""
        connection = await self._connection(broker_id)
        return connection.version_for(api_key, highest=highest)

    async def ask(
        self, broker_id: int, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED, version: int | None = None
    ) -> Any:
        """The response of that broker, in `version` or the newest from `lowest` to `highest` that both sides speak.

        Raises BrokerUnreachableError, ConnectionLostError, RequestTimeoutError, UnsupportedVersionError or what the
        broker said to this one's password.
        """
        connection = await self._connection(broker_id)
        if version is None:
            version = connection.version_for(api_key_of(request.__class__), lowest=lowest, highest=highest)
        return await connection.send(request, version)

    def close(self) -> None:
        """End all connections; what is in flight fails."""
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
            outgoing.refused(broker_id, error)
            raise
        outgoing.admitted(broker_id)
        return connection

    def _peer(self, broker_id: int) -> Peer:
        endpoint = self._endpoint(broker_id)
        known = self._peers.get(broker_id)
        if known is not None and known[0] == endpoint:
            return known[1]
        if known is not None:
            # It has moved, or is gone: what the old address would answer is not meant.
            self._peers.pop(broker_id)[1].close()
        if endpoint is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not alive")
        peer = Peer(*endpoint, self._options, self._random)
        self._peers[broker_id] = endpoint, peer
        return peer
