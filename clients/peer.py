"""One address that connections are opened to: at most one at a time, and after failures not before a growing pause."""

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


class Peer:
    """Who has something to send asks for the connection each time: a lost one is replaced by a new one."""

    def __init__(self, host: str, port: int, options: ConnectionOptions, rng: Random) -> None:
        self._address = host, port
        self.options = options
        """Of the next connection."""
        self._backoff = Backoff(RECONNECT_BACKOFF_MS, RECONNECT_BACKOFF_MAX_MS, rng)
        self._connection: BrokerConnection | None = None
        self._lock = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def open_connection(self) -> BrokerConnection | None:
        """The connection if one is open now."""
        connection = self._connection
        return connection if connection is not None and connection.is_open else None

    async def connection(self) -> BrokerConnection:
        """The open connection, or a new one. Raises BrokerUnreachableError, or what the broker said at the start."""
        async with self._lock:
            if (connection := self.open_connection) is not None:
                return connection
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._not_before - loop.time()))
            if self._closed:
                raise BrokerUnreachableError("the client is closed")
            # A broker that takes every connection and then drops it is not to be run at in a circle either.
            self._not_before = loop.time() + RECONNECT_BACKOFF_MS / 1000
            try:
                connection = await BrokerConnection.open(*self._address, self.options)
            except KafkaError:
                self._failures += 1
                self._not_before = loop.time() + self._backoff.delay(self._failures)
                raise
            if self._closed:
                connection.close()
                raise BrokerUnreachableError("the client was closed meanwhile")
            self._failures = 0
            self._connection = connection
            return connection

    def give_up(self, reason: KafkaError | None = None) -> None:
        """End the connection with what is in flight on it; the next that is asked for is a new one."""
        if self._connection is not None:
            self._connection.close(reason)

    def close(self) -> None:
        """End the connection; no other will be opened."""
        self._closed = True
        self.give_up()
