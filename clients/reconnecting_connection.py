"""A connection to one address: at most one at a time, and after failures with a growing pause before the next
attempt.
"""

from __future__ import annotations

import asyncio
from random import Random

from ..protocol.errors import KafkaError
from .backoff import Backoff
from .connection import BrokerConnection, ConnectionOptions
from .errors import BrokerUnreachableError

RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MAX_MS = 1000
"""Kafka's `reconnect.backoff.ms` and `reconnect.backoff.max.ms`."""


class ReconnectingConnection:
    """Callers request the connection for each request; a lost connection is replaced by a new one."""

    def __init__(self, host: str, port: int, options: ConnectionOptions, rng: Random) -> None:
        self._address = host, port
        self.options = options
        """Settings of the next connection."""
        self._backoff = Backoff(RECONNECT_BACKOFF_MS, RECONNECT_BACKOFF_MAX_MS, rng)
        self._connection: BrokerConnection | None = None
        self._lock = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def open_connection(self) -> BrokerConnection | None:
        """Return the open connection, if any."""
        connection = self._connection
        return connection if connection is not None and connection.is_open else None

    async def connection(self) -> BrokerConnection:
        """Return the open connection, or a new one. Raises BrokerUnreachableError, or the broker's first error."""
        async with self._lock:
            if (connection := self.open_connection) is not None:
                return connection
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._not_before - loop.time()))
            if self._closed:
                raise BrokerUnreachableError("the client is closed")
            # The pause also applies to a broker that accepts every connection and then closes it.
            self._not_before = loop.time() + RECONNECT_BACKOFF_MS / 1000
            try:
                connection = await BrokerConnection.open(*self._address, self.options)
            except KafkaError:
                self._failures += 1
                self._not_before = loop.time() + self._backoff.delay(self._failures)
                raise
            if self._closed:
                connection.close()
                raise BrokerUnreachableError("the client was closed")
            self._failures = 0
            self._connection = connection
            return connection

    def give_up(self, reason: KafkaError | None = None) -> None:
        """Close the connection with its requests in flight; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close(reason)

    def close(self) -> None:
        """Close the connection permanently."""
        self._closed = True
        self.give_up()
