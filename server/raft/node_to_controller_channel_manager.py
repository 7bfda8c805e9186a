"""Requests of a broker to the active controller (Kafka: NodeToControllerChannelManager, NodeToControllerRequestThread).

The active controller is the leader of the metadata quorum. A request that reaches another controller, or a controller
that stops, is sent again to the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ...clients.errors import BrokerUnreachableError
from ...protocol.errors import ConnectionLostError, ErrorCode, RequestTimeoutError
from ...protocol.schema import UNBOUNDED, Versions

if TYPE_CHECKING:
    from .controller_connections import ControllerConnections
    from .observer_state import Endpoint

T = TypeVar("T")

NO_CONTROLLER_BACKOFF_S = 0.1
"""Pause before the next attempt while no controller is known, or after an attempt without a response."""


class NodeToControllerChannelManager:
    """Sends requests to the active controller over connections of its own. Owned by a component of the broker.

    Requests are pipelined in the order of the calls. Used on the loop's thread only.
    """

    def __init__(
        self,
        leader_endpoint: Callable[[], Endpoint | None],
        connections: ControllerConnections,
        *,
        retry_timeout_ms: int = 60_000,
    ) -> None:
        """`leader_endpoint` is that of the `KafkaRaftClient`. `connections` are closed with this object."""
        self._leader_endpoint = leader_endpoint
        self._connections = connections
        self._retry_timeout_ms = retry_timeout_ms
        self._is_closed = False
        self._controller_api_versions: Mapping[int, Versions] | None = None

    @property
    def controller_api_versions(self) -> Mapping[int, Versions] | None:
        """The versions that the active controller supports, by API key; None before the first connection to it.

        Without a connection the versions of the last connection are returned.
        """
        endpoint = self._leader_endpoint()
        found = None if endpoint is None else self._connections.api_versions(endpoint)
        if found is not None:
            self._controller_api_versions = found
        return self._controller_api_versions

    async def version_for(self, request: type, *, lowest: int = 0, highest: int = UNBOUNDED) -> int:
        """Return the newest version of a request that the active controller supports. Raises as `send_request`."""
        return await self._retry(
            lambda endpoint: self._connections.version_for(endpoint, request, lowest=lowest, highest=highest)
        )

    async def send_request(
        self,
        request: Any,
        *,
        lowest: int = 0,
        highest: int = UNBOUNDED,
        max_losses: int | None = None,
        attempts_ms: int | None = None,
    ) -> Any:
        """Send a request until a controller responds to it as the active one, and return the response.

        Raise ConnectionLostError after `max_losses` lost connections, if that is set. No attempt begins `attempts_ms`
        after the call.

        The controller may have acted on a request without a response. It is repeated nevertheless, as in Kafka: a
        response such as TOPIC_ALREADY_EXISTS may be caused by the first attempt.
        Raises RequestTimeoutError if all attempts in `retry_timeout_ms` or `attempts_ms` have failed,
        UnsupportedVersionError, ConnectionLostError after `close`, and the KafkaError of a failed authentication.
        """
        return await self._retry(
            lambda endpoint: self._connections.send_request(endpoint, request, lowest=lowest, highest=highest),
            max_losses,
            attempts_ms,
        )

    def close(self) -> None:
        """Close the connections; requests in flight fail."""
        self._is_closed = True
        self._connections.close()

    async def _retry(
        self,
        attempt: Callable[[Endpoint], Awaitable[T]],
        max_losses: int | None = None,
        attempts_ms: int | None = None,
    ) -> T:
        reason, losses = "no active controller is known", 0
        limit_ms = self._retry_timeout_ms if attempts_ms is None else min(attempts_ms, self._retry_timeout_ms)
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._retry_timeout_ms / 1000):
                while True:
                    if self._is_closed:
                        raise ConnectionLostError("the connection to the controller was closed")
                    endpoint = self._leader_endpoint()
                    if endpoint is not None:
                        try:
                            response = await attempt(endpoint)
                        except (ConnectionLostError, RequestTimeoutError, BrokerUnreachableError) as error:
                            reason = str(error)
                            losses += isinstance(error, ConnectionLostError)
                            if losses == max_losses:
                                raise
                        else:
                            if not _is_of_inactive_controller(response):
                                return response
                            reason = f"{endpoint[0]}:{endpoint[1]} is not the active controller"
                            self._connections.disconnect(endpoint)
                    await asyncio.sleep(NO_CONTROLLER_BACKOFF_S)
                    if asyncio.get_running_loop().time() - began >= limit_ms / 1000:
                        raise TimeoutError
        except TimeoutError:
            raise RequestTimeoutError(f"no response of the active controller in {limit_ms} ms: {reason}") from None


def _is_of_inactive_controller(response: Any) -> bool:
    """Return whether a response has NOT_CONTROLLER; a response to CreateTopics has it as the error of each topic."""
    errors = [getattr(one, "error_code", ErrorCode.NONE) for one in (response, *getattr(response, "topics", ()))]
    return ErrorCode.NOT_CONTROLLER in errors
