"""Produce requests of several connections, or pipelined requests of one connection, with one append per partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from ...protocol.apis import ApiKey
from ...protocol.errors import KafkaError
from ...protocol.frames import LENGTH_SIZE
from ...protocol.headers import RequestHeader
from ...protocol.joint_produce import KEY_FRONT, group_produces
from ...protocol.produce_entries import SINCE_TOPIC_IDS, ProduceEntries
from ...storage.joint_append import JOINT_RULES, JointAppend
from ..replication.append_request import AppendRequest
from .request_context import RequestContext

if TYPE_CHECKING:
    from ...protocol.joint_produce import JoinedProduces
    from ..network.connection import Connection
    from ..replication.delayed_produce import AppendResult
    from .interceptors import Respond
    from .services import Services

_length_at = Struct(">i").unpack_from
_CORRELATION_ID_AT = 4
UNLIMITED = 2**31 - 1
"""The number of requests per connection that are joined if no response has to wait."""


class JointProduce:
    """The handler that appends small produce requests together. Owned by `KafkaApis`; used on the event loop's thread.

    Only for a broker whose produce requests pass no interceptor, authorizer or quota. The rules and the code of one
    append apply to the records: `ReplicaManager.append_jointly`.
    """

    def __init__(self, services: Services, responder: Callable[[ApiKey, int], Respond]) -> None:
        """`responder` returns the function that encodes and sends the responses of one version of an API."""
        self._services = services
        self._replica_manager = services.replica_manager
        self._metadata = services.metadata_cache
        self._versions = services.served[ApiKey.PRODUCE]
        self._responder = responder

    def handle(
        self, connections: Sequence[Connection], buffer: memoryview, parts: list[tuple[int, int]]
    ) -> Iterator[tuple[int, int, bytes | None]]:
        """Handle requests at the beginning of parts `[start, end)` of the buffer, one part per connection.

        Yields the number of a part, the position after its last handled request, and the responses; None if one request
        waits, and its response is sent later.
        """
        for key, numbers in group_produces(buffer, parts).items():
            if len(numbers) == 1:
                start, end = parts[numbers[0]]
                if end - start < 2 * (LENGTH_SIZE + _length_at(buffer, start)[0]):
                    continue  # a single request
            # After an error for a batch of an idempotent producer its later batches must be refused, which the general
            # path does.
            numbers = [number for number in numbers if not connections[number].session.sequence_gap_guard]
            group = _Group(key, [connections[number] for number in numbers])
            joined = self._append(group, buffer, [parts[number] for number in numbers])
            if joined is not None:
                for number, end, responses in zip(numbers, joined.ends, joined.responses, strict=True):
                    if responses:
                        yield number, end, None if group.is_waiting else responses

    def _append(self, group: _Group, buffer: memoryview, parts: list[tuple[int, int]]) -> JoinedProduces | None:
        """Append the batches of one group of requests. Returns None if the general path handles the requests instead.

        If the responses wait for a disk or for other replicas, at most one request of each connection is appended: a
        connection handles no other request before its response is sent.
        """
        version, acks, index, timeout_ms = group.version, group.acks, group.index, group.timeout_ms
        name = self._metadata.names.get(group.topic) if version >= SINCE_TOPIC_IDS else str(group.topic, "ascii")
        if name is None or not self._versions.lowest <= version <= self._versions.highest or acks not in (-1, 1):
            return None
        partition = self._replica_manager.get_partition(name, index)
        if partition is None or self._services.fault("produce-answer-lost"):
            return None
        is_decided = partition.decides_immediately(acks)
        if not is_decided and len(parts) == 1:
            return None
        joint = JointAppend(buffer, parts, group.key, partition.log_start_offset, UNLIMITED if is_decided else 1)

        def decided(results: list[AppendResult]) -> None:
            group.result = results[0]
            if group.is_waiting:
                assert joint.joined is not None, "the append is awaited"
                self._respond(group, name, joint.joined)

        self._replica_manager.append_jointly(
            name, index, AppendRequest(acks, timeout_ms, decided, JOINT_RULES, validate=joint)
        )
        if group.result is None:
            group.is_waiting = True
        return None if isinstance(group.result, KafkaError) else joint.joined

    def _respond(self, group: _Group, name: str, joined: JoinedProduces) -> None:
        """Send the responses to requests that have waited."""
        for connection, response in zip(group.connections, joined.responses, strict=True):
            if not response:
                continue
            if isinstance(group.result, KafkaError):
                self._respond_with_error(group, name, connection, _length_at(response, _CORRELATION_ID_AT)[0])
            else:
                connection.send([response], len(response))

    def _respond_with_error(self, group: _Group, name: str, connection: Connection, correlation_id: int) -> None:
        """Send the error response as the handler of a single request does."""
        from .handlers.produce import PendingProduce

        services = self._services
        header = RequestHeader(ApiKey.PRODUCE, group.version, correlation_id)
        context = RequestContext(header, connection, self._responder(ApiKey.PRODUCE, group.version))
        topic = group.topic if group.version >= SINCE_TOPIC_IDS else name
        request = ProduceEntries(None, group.acks, group.timeout_ms, [(topic, group.index)], [])
        pending = PendingProduce(context, request, services.metadata_cache, services.fault, services.sliced_work)
        assert group.result is not None, "it is decided"
        pending.respond([group.result])


class _Group:
    """Requests of several connections to one partition, which differ only in their batches."""

    __slots__ = ("acks", "connections", "index", "is_waiting", "key", "result", "timeout_ms", "topic", "version")

    def __init__(self, key: bytes, connections: list[Connection]) -> None:
        self.key = key
        self.version, self.acks, self.index, self.timeout_ms = KEY_FRONT.unpack_from(key)
        self.topic = key[KEY_FRONT.size :]
        self.connections = connections
        self.result: AppendResult | None = None
        self.is_waiting = False
