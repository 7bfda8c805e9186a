"""The common part of producer, consumer and admin client: connections by broker, current metadata, retries by error
code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from math import inf
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from ..common.room_logger import room_logger
from ..protocol.apis import ApiKey
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from .backoff import Backoff
from .cluster import BrokerNode, ClusterView, TopicInfo
from .connection import BrokerConnection, ConnectionOptions
from .errors import BrokerUnreachableError, ConnectionLostError, RequestTimeoutError
from .reconnecting_connection import ReconnectingConnection

logger = room_logger("clients")

T = TypeVar("T")
Address = tuple[str, int]
DEFAULT_PORT = 9092
LAST_PORT = 65535
_NOT_ADMITTED = frozenset({ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM})
"""Errors for which another broker would return the same."""


def parse_bootstrap(servers: str | Sequence[str]) -> list[Address]:
    """Parse `"host:port,host:port"` or a list of these; the port is optional. Raises ValueError."""
    addresses = []
    for server in servers.split(",") if isinstance(servers, str) else servers:
        host, colon, port = server.strip().rpartition(":")
        if not colon:
            host, port = port, str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) <= LAST_PORT:
            raise ValueError(f"{server!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


class Client:
    """Connections and metadata of one client, used between `start()` and `close()` on one event loop."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        rng: Random,
        options: ConnectionOptions | None = None,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        metadata_max_age_ms: int = 300_000,
        metadata_max_idle_ms: int = 300_000,
        allow_auto_topic_creation: bool = True,
    ) -> None:
        self.cluster = ClusterView()
        self.options = options or ConnectionOptions()
        self.retry_backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, rng)
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._rng = rng
        self.metadata_max_age = metadata_max_age_ms / 1000
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._peers: dict[Address, ReconnectingConnection] = {}
        self._coordinators: dict[Address, ReconnectingConnection] = {}
        self.metadata_max_idle = metadata_max_idle_ms / 1000
        self._watched: dict[str, float] = {}
        """Topics of interest, and the loop time at which each expires unless it is needed."""
        self._needs: list[Callable[[], Iterable[str]]] = []
        self._all_topics = False
        self._metadata_lock = asyncio.Lock()
        self._refreshed_at = -inf
        self._refreshes_asked = 0
        self._refreshes_done = 0
        self._background: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._closed = False

    def new_id(self) -> UUID:
        """Random number of the client's own generator."""
        return UUID(int=self._rng.getrandbits(128), version=4)

    def describe_denial(self, operation: str, resource: str) -> str:
        """Return the text of an authorization error, as `Security.describe_denial`."""
        return self.options.security.describe_denial(operation, resource)

    async def start(self) -> None:
        """Connect to a bootstrap server and read the brokers. Raises BrokerUnreachableError."""
        await self.refresh_metadata()

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._closed = True
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)
        for peer in (*self._peers.values(), *self._coordinators.values()):
            peer.close()

    # Connections

    async def connection(self, node_id: int) -> BrokerConnection:
        """Return an open connection to that broker. Raises BrokerUnreachableError."""
        node = self.cluster.brokers.get(node_id)
        if node is None:
            raise BrokerUnreachableError(f"unknown broker {node_id}")
        return await self._open((node.host, node.port), self._peers)

    async def connection_to_coordinator(self, node: BrokerNode) -> BrokerConnection:
        """Return a connection for the requests of a group only, some of which wait for minutes. Raises
        BrokerUnreachableError.
        """
        return await self._open((node.host, node.port), self._coordinators)

    def close_connection_to_coordinator(self, node: BrokerNode, reason: str) -> None:
        """Close the connection with its requests in flight."""
        peer = self._coordinators.get((node.host, node.port))
        if peer is not None:
            peer.give_up(ConnectionLostError(reason))

    def open_connection(self, node_id: int) -> BrokerConnection | None:
        """Return the open connection to that broker, if any."""
        node = self.cluster.brokers.get(node_id)
        peer = self._peers.get((node.host, node.port)) if node is not None else None
        return peer.open_connection if peer is not None else None

    async def any_connection(self) -> BrokerConnection:
        """Return the least busy open connection, or a new one to any broker.

        Raises BrokerUnreachableError, or the error of the first broker that rejects the credentials.
        """
        connections = (peer.open_connection for peer in self._peers.values())
        usable = [connection for connection in connections if connection is not None]
        if usable:
            return min(usable, key=lambda c: c.in_flight_count)
        known = [(node.host, node.port) for node in self.cluster.brokers.values()]
        self._rng.shuffle(known)
        failures = []
        for address in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._open(address, self._peers)
            except KafkaError as error:
                if error.code in _NOT_ADMITTED:
                    raise
                failures.append(str(error))
        raise BrokerUnreachableError("; ".join(failures))

    async def controller_connection(self) -> BrokerConnection:
        """Return a connection to the controller, or to any broker if it is unknown (which reports or forwards it)."""
        controller = self.cluster.controller_id
        if controller in self.cluster.brokers:
            return await self.connection(controller)
        return await self.any_connection()

    async def _open(self, address: Address, peers: dict[Address, ReconnectingConnection]) -> BrokerConnection:
        if self._closed:
            raise BrokerUnreachableError("the client is closed")
        peer = peers.get(address)
        if peer is None:
            peer = peers[address] = ReconnectingConnection(*address, self.options, self._rng)
        return await peer.connection()

    # Metadata

    async def refresh_metadata(self) -> None:
        """Request the brokers and the topics of interest; overlapping calls share one request."""
        self._refreshes_asked += 1
        mine = self._refreshes_asked
        async with self._metadata_lock:
            if self._refreshes_done >= mine:
                return
            begun = self._refreshes_asked
            topics = None if self._all_topics else self._topics_of_interest()
            self.cluster.update(await self._ask_metadata(topics), complete=topics is None)
            if topics is not None:
                # The metadata of topics without interest would become outdated.
                self.cluster.retain(self._topics_of_interest())
            self._refreshes_done = begun
            self._refreshed_at = asyncio.get_running_loop().time()
        for listener in self._listeners:
            listener()

    def refresh_soon(self) -> None:
        """Refresh in the background until it succeeds, with at least `retry_backoff_ms` between attempts."""
        if not self._closed and (self._background is None or self._background.done()):
            self._background = asyncio.get_running_loop().create_task(self._refresh_until_done())

    @property
    def refresh_due_at(self) -> float:
        """Return the time at which metadata will be older than `metadata_max_age_ms`."""
        return self._refreshed_at + self.metadata_max_age

    def maybe_refresh(self) -> bool:
        """Start a refresh if metadata is older than `metadata_max_age_ms`."""
        if asyncio.get_running_loop().time() < self.refresh_due_at:
            return False
        self.refresh_soon()
        return True

    def on_metadata(self, listener: Callable[[], None]) -> None:
        """Register `listener` to be called after every refresh."""
        self._listeners.append(listener)

    def watch_topics(self, topics: Iterable[str]) -> None:
        """Include these topics in refreshes, until they have not been watched or needed for `metadata_max_idle_ms`.

        A permanent request for a topic would recreate a deleted topic if the cluster creates topics automatically.
        """
        until = asyncio.get_running_loop().time() + self.metadata_max_idle
        self._watched.update(dict.fromkeys(topics, until))

    def keep_topics(self, needed: Callable[[], Iterable[str]]) -> None:
        """Include the topics that `needed` returns at the time of each refresh."""
        self._needs.append(needed)

    @contextmanager
    def watching(self, topics: Iterable[str]) -> Iterator[None]:
        """Include these topics in refreshes inside the block."""
        names = tuple(topics)

        def needed() -> tuple[str, ...]:
            return names

        self._needs.append(needed)
        try:
            yield
        finally:
            self._needs.remove(needed)

    def _topics_of_interest(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        self._watched = {name: until for name, until in self._watched.items() if until > now}
        return sorted(self._watched.keys() | {name for needed in self._needs for name in needed()})

    def watch_all_topics(self, wanted: bool) -> None:
        """Return whether every refresh requests all topics."""
        self._all_topics = wanted

    async def topic(self, name: str, timeout_ms: int, *, partition: int | None = None) -> TopicInfo:
        """Return the topic once it has partitions, or this partition; it may be being created. Raises KafkaError,
        including RequestTimeoutError.
        """
        known = self.cluster.topics.get(name)
        if known is not None and known.partitions and (partition is None or partition in known.partitions):
            return known

        async def ask() -> TopicInfo:
            await self.refresh_metadata()
            info = self.cluster.topics.get(name)
            if info is None or not info.partitions:
                code = info.error if info is not None else ErrorCode.LEADER_NOT_AVAILABLE
                reason = f"topic {name!r} is not available"
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    reason = self.describe_denial("Describe", f"topic {name}")
                raise KafkaError(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
            if partition is not None and partition not in info.partitions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has {len(info.partitions)} partitions")
            return info

        with self.watching([name]):
            return await self.retrying(ask, timeout_ms=timeout_ms)

    async def ask_metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        """Return a Metadata response for these topics or all (None), and update the cluster view with it."""
        response = await self._ask_metadata(None if topics is None else list(topics))
        self.cluster.update(response)
        return response

    async def _ask_metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        connection = await self.any_connection()
        version = connection.version_for(ApiKey.METADATA)
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        if wanted is None and version == 0:
            wanted = []
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=self._allow_auto_topic_creation)
        if version < 4:
            request.allow_auto_topic_creation = True
        response = await connection.send(request, version)
        assert isinstance(response, MetadataResponse)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            error = ConnectionLostError("the cluster requires its clients to bootstrap again")
            self.cluster.brokers.clear()
            for peer in (*self._peers.values(), *self._coordinators.values()):
                peer.give_up(error)  # open connections lead to the broker that required it
            raise error
        return response

    async def _refresh_until_done(self) -> None:
        loop = asyncio.get_running_loop()
        attempt = 1
        await asyncio.sleep(max(0.0, self._refreshed_at + self.retry_backoff.delay(attempt) - loop.time()))
        while not self._closed:
            try:
                await self.refresh_metadata()
            except KafkaError as error:
                logger.info("metadata not refreshed yet: %s", error)
            else:
                return
            attempt += 1
            await asyncio.sleep(self.retry_backoff.delay(attempt))

    # Retries

    async def retrying(self, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T:
        """Await `attempt()`, again with backoff and fresh metadata while its error is retriable and time remains.

        The timeout also ends an attempt: a silent broker would otherwise take the request timeout of its connection.
        Raises the error of the last attempt, or RequestTimeoutError.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        failures = 0
        last_error: KafkaError | None = None
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                while True:
                    try:
                        return await attempt()
                    except KafkaError as error:
                        failures += 1
                        delay = self.retry_backoff.delay(failures)
                        if not error.code.retriable or loop.time() + delay >= deadline:
                            raise
                        last_error = error
                        logger.debug("retrying after %s", error)
                    await asyncio.sleep(delay)
                    await self._refresh_if_reachable()
        except TimeoutError:
            if not limit.expired():
                raise
            raise last_error or RequestTimeoutError(f"no response within {timeout_ms} ms") from None

    @asynccontextmanager
    async def time_limit(self, timeout_ms: int) -> AsyncIterator[None]:
        """Cancel the block after `timeout_ms`, without retries. Raises RequestTimeoutError."""
        limit = asyncio.timeout(timeout_ms / 1000)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeoutError(f"no response within {timeout_ms} ms") from None

    async def ask(self, node_id: int | None, request: Any) -> Any:
        """Send `request` to a broker (None: any) in the newest common version, without retries."""
        connection = await (self.any_connection() if node_id is None else self.connection(node_id))
        return await connection.send(request)

    async def _refresh_if_reachable(self) -> None:
        try:
            await self.refresh_metadata()
        except KafkaError as error:
            logger.debug("metadata not refreshed: %s", error)
