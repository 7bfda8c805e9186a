"""Blocking requests of readers: topics, offsets, records; one connection per broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Self, TypeVar
from uuid import UUID

from ..clients.client import parse_bootstrap
from ..clients.cluster import ClusterView
from ..clients.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimeoutError,
    code_of,
)
from ..clients.security import Security, security_of
from ..protocol.apis import ApiKey
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..protocol.receive_buffer import FrameMemory
from ..protocol.replica_ids import CONSUMER_REPLICA_ID
from ..protocol.topic_partition import TopicPartition, indexes_by_topic
from . import host
from .connection import CLIENT_ID, BlockingConnection

_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.05, 1.0
_FIRST_CONTACT_S = 5.0
"""Seconds to retry the first connection to a cluster: its address is probably wrong."""

_REUSED_FRAMES = 2
"""Frames whose memory is used again: one response is decoded while the next one arrives."""

T = TypeVar("T")


@dataclass(frozen=True)
class ClientSettings:
    """Connection settings; `properties` are a Kafka client's settings, such as `sasl.mechanism`."""

    bootstrap_servers: str
    properties: Mapping[str, str]
    client_id: str = CLIENT_ID

    @property
    def request_timeout_ms(self) -> int:
        return self.number("request.timeout.ms", 30_000)

    def number(self, name: str, default: int) -> int:
        """Return a setting that is a positive whole number. Raises ValueError."""
        text = str(self.properties.get(name, default)).strip()
        if not text.isdecimal() or int(text) == 0:
            raise ValueError(f"{name}: invalid value {text!r}. Expected a positive number")
        return int(text)

    @property
    def is_read_committed(self) -> bool:
        """Return whether records of open and aborted transactions are hidden. Raises ValueError."""
        level = self.properties.get("isolation.level", "read_uncommitted")
        if level not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"isolation.level: invalid value {level!r}. Expected read_uncommitted or read_committed")
        return level == "read_committed"


class BlockingClient:
    """A client, used as a context manager on one thread; every call retries retriable errors until the request
    timeout.
    """

    def __init__(self, settings: ClientSettings, *, is_known_cluster: bool = False) -> None:
        """Create a client without a connection. The first contact with a cluster is retried for five seconds, since its
        address is probably wrong; with `is_known_cluster` for the whole timeout, as later requests are.
        """
        self.settings = settings
        self.cluster = ClusterView()
        self._is_known_cluster = is_known_cluster
        self._interruption = host.new_interruption()
        self._memory = FrameMemory(_REUSED_FRAMES)
        self._bootstrap = parse_bootstrap(settings.bootstrap_servers)
        self._security: Security = security_of(settings.properties)
        self._connections: dict[tuple[str, int], BlockingConnection] = {}
        self._opening: BlockingConnection | None = None
        """A connection whose broker has not responded yet."""
        self._found_by = inf
        self._retried_until = inf
        """The deadline of the current retries."""
        self._silent: set[tuple[str, int]] = set()
        """Brokers that did not respond last time; they are the last choice for requests that any broker can answer."""
        self._doubted: set[str] = set()
        """Topics that may have other leaders, since a broker did not respond."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def interrupt(self) -> None:
        """End the requests of the thread that uses the client, from any other thread, with a KafkaError.

        A thread that opens a TCP connection at this moment continues until it is open, or fails.
        """
        self._interruption.set()
        opening = self._opening  # read first: a connection is in `_connections` before it is no longer here
        for connection in list(self._connections.values()):
            connection.interrupt()
        if opening is not None:
            opening.interrupt()

    def pause(self, seconds: float) -> None:
        """Sleep, until `interrupt` is called."""
        host.pause(seconds, self._interruption)

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        for address, connection in list(self._connections.items()):  # an abandoned thread may add one
            connection.close()
            if connection.is_silent:
                self._silent.add(address)
        self._connections.clear()

    # Connections and retries

    def retrying(self, attempt: Callable[[], T], *, timeout_ms: int | None = None) -> T:
        """Call `attempt()`, again after a growing pause while its error is retriable and time remains.

        If an attempt calls this method itself, the inner call ends at the deadline of the outer one at the latest.
        """
        timeout_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        outer = self._retried_until
        self._retried_until = min(outer, host.monotonic() + timeout_ms / 1000)
        try:
            return self._retrying(attempt, self._retried_until)
        finally:
            self._retried_until = outer

    def _retrying(self, attempt: Callable[[], T], deadline: float) -> T:
        began, delay = host.monotonic(), _FIRST_BACKOFF_S
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if self._interruption.is_set():
                    raise
                if not self.cluster.brokers and not self._is_known_cluster:
                    # Nested retries share one deadline.
                    self._found_by = min(self._found_by, began + _FIRST_CONTACT_S)
                    deadline = min(deadline, self._found_by)
                if not error.code.retriable or host.monotonic() + delay > deadline:
                    raise
                if error.code is ErrorCode.NETWORK_EXCEPTION or error.code is ErrorCode.REQUEST_TIMED_OUT:
                    self.close()
                    self._doubted.update(self.cluster.topics)
            self.pause(delay)
            delay = min(2 * delay, _MAX_BACKOFF_S)

    def any_connection(self) -> BlockingConnection:
        """Return an open connection, or a new one to any broker. Raises BrokerUnreachableError."""
        for connection in self._connections.values():
            return connection
        failures = []
        known = [(node.host, node.port) for node in self.cluster.brokers.values()]
        addresses = dict.fromkeys([*known, *self._bootstrap])
        for address in sorted(addresses, key=self._silent.__contains__):
            try:
                return self._open(address)
            except (BrokerUnreachableError, ConnectionLostError, RequestTimeoutError) as error:
                failures.append(str(error))
        raise BrokerUnreachableError("; ".join(failures))

    def connection(self, node_id: int) -> BlockingConnection:
        """Return the connection to that broker. Raises BrokerUnreachableError."""
        node = self.cluster.brokers.get(node_id)
        if node is None:
            raise BrokerUnreachableError(f"unknown broker {node_id}")
        return self._open((node.host, node.port))

    def leader(self, partition: TopicPartition) -> int:
        """Return the leader's broker id. Raises KafkaError (retriable) while there is none."""
        self._settle_doubts({partition.topic})
        leader = self.cluster.leader(partition)
        if leader is None:
            self.refresh([partition.topic])
            leader = self.cluster.leader(partition)
        if leader is None:
            known = self.cluster.partition(partition) is not None
            code = ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, f"partition {partition}")
        return leader

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by leader. Raises as `leader`."""
        wanted = list(partitions)
        self._settle_doubts({partition.topic for partition in wanted})
        groups: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            groups.setdefault(self.leader(partition), []).append(partition)
        return groups

    def _settle_doubts(self, topics: set[str]) -> None:
        """Refresh the leaders of these topics if they may have changed. Raises KafkaError."""
        doubted = self._doubted & topics
        if doubted:
            self.refresh(sorted(doubted))

    def _open(self, address: tuple[str, int]) -> BlockingConnection:
        connection = self._connections.get(address)
        if self._interruption.is_set():
            raise ConnectionLostError("the read has ended")
        if connection is None:
            self._silent.add(address)  # until its next response
            try:
                self._connections[address] = connection = BlockingConnection(
                    address,
                    self._security,
                    self.settings.request_timeout_ms / 1000,
                    client_id=self.settings.client_id,
                    memory=self._memory,
                    on_connected=self._on_connected,
                )
            finally:
                self._opening = None
            self._silent.discard(address)
        return connection

    def _on_connected(self, connection: BlockingConnection) -> None:
        self._opening = connection
        if self._interruption.is_set():
            connection.interrupt()  # `interrupt` may not have found it

    # Topics

    def refresh(self, topics: Iterable[str] | None) -> None:
        """Request these topics, or all (None), and update `cluster`."""
        names = None if topics is None else list(topics)
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self.retrying(lambda: self.any_connection().ask(request))
        if names is None:
            self.cluster.topics.clear()
            self._doubted.clear()
        else:
            self._doubted.difference_update(names)
        self.cluster.update(response)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """Return the ids of the topics, as of the last `refresh`."""
        return {topic: self.cluster.topic_id(topic) for topic in topics}

    # Offsets

    def find_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each timestamp (ms) or of each special timestamp; -1 if there is none."""
        found: dict[TopicPartition, int] = {}
        self.retrying(lambda: self._find_missing(timestamps, found))
        return found

    def _find_missing(self, timestamps: Mapping[TopicPartition, int], found: dict[TopicPartition, int]) -> None:
        failure: KafkaError | None = None
        for leader, partitions in self.by_leader(tp for tp in timestamps if tp not in found).items():
            by_topic: dict[str, list[ListOffsetsPartition]] = {}
            for tp in partitions:
                asked = ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamps[tp])
                by_topic.setdefault(tp.topic, []).append(asked)
            request = ListOffsetsRequest(
                replica_id=CONSUMER_REPLICA_ID,
                isolation_level=int(self.settings.is_read_committed),
                topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
            )
            for topic in self.connection(leader).ask(request).topics:
                for answer in topic.partitions:
                    tp, code = TopicPartition(topic.name, answer.partition_index), code_of(answer.error_code)
                    if code is ErrorCode.NONE:
                        found[tp] = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
                    else:
                        failure = KafkaError(code, f"offsets of {tp}")
        if failure is not None:
            if failure.code.retriable:
                self.refresh({tp.topic for tp in timestamps})
            raise failure

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the bytes on disk of each partition, as far as brokers report them: an estimate that may be missing.

        It requires permission to describe the cluster.
        """
        found: dict[TopicPartition, int] = {}
        for leader, led in self.by_leader(partitions).items():
            connection = self.connection(leader)
            if not connection.supports(ApiKey.DESCRIBE_LOG_DIRS):
                continue
            topics = [
                DescribableLogDirTopic(topic=name, partitions=indexes)
                for name, indexes in indexes_by_topic(led).items()
            ]
            response: Any = connection.ask(DescribeLogDirsRequest(topics=topics))
            for result in response.results:
                for topic in result.topics:
                    for p in topic.partitions:
                        if not p.is_future_key:  # the part of a replica that is being moved to another directory
                            found[TopicPartition(topic.name, p.partition_index)] = p.partition_size
        return found
