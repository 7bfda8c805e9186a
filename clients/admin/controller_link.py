"""Requests that only the controller of a cluster answers."""

from __future__ import annotations

from typing import Any

from ...protocol.apis import api_key_of
from ...protocol.errors import ErrorCode, KafkaError
from ..client import Client


class ControllerLink:
    """A connection to the controller that follows it to another broker."""

    def __init__(self, client: Client, *, request_timeout_ms: int, timeout_ms: int) -> None:
        self._client = client
        self.request_timeout_ms = request_timeout_ms
        self._timeout_ms = timeout_ms

    async def ask(self, request: Any, results: str, *, lowest: int = 0, fit: Any = None) -> Any:
        """Send a request to the controller, and again after NOT_CONTROLLER.

        `results` is the name of the response's list of outcomes, empty if it has none with error codes. `fit` adapts
        the request to the negotiated version.
        """

        async def ask() -> Any:
            connection = await self._client.controller_connection()
            version = connection.version_for(api_key_of(request.__class__), lowest=lowest)
            if fit is not None:
                fit(version)
            timeout_ms = self.request_timeout_ms + self._timeout_ms
            response = await connection.send(request, version, timeout_ms=timeout_ms)
            codes = {one.error_code for one in getattr(response, results)} if results else set()
            codes.add(getattr(response, "error_code", ErrorCode.NONE))
            if ErrorCode.NOT_CONTROLLER in codes:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, f"broker {connection.address}")
            return response

        return await self._client.retrying(ask, timeout_ms=self._timeout_ms)
