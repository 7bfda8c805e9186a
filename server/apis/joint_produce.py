"""Produce requests of several connections, or pipelined requests of one connection, with one append per partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from ...protocol.apis import ApiKey
from ...protocol.errors import KafkaError
from ...protocol.frames import LENGTH_SIZE
from ...protocol.headers import RequestHeader, decode_request_header
from ...protocol.joint_produce import KEY_FRONT, group_produces, with_throttle_time
from ...protocol.produce_entries import SINCE_TOPIC_IDS, CompactProduceResponse, ProduceEntries
from ...storage.joint_append import JOINT_RULES
from ..network.request_turn import BEFORE_GROUP
from ..quotas.request_quota_usage import RequestQuotaUsage
from ..replication.append_request import AppendRequest
from .request_context import RequestContext

if TYPE_CHECKING:
    from ...protocol.joint_produce import JoinedProduces
    from ...protocol.produce_entries import EntryKey
    from ..network.connection import Connection
    from ..quotas.quota_managers import QuotaManagers
    from ..replication.delayed_produce import AppendResult
    from ..replication.partition import Partition
    from ..security.session import Session
    from .interceptors import RequestMeter
    from .request_context import Respond
    from .services import Services

_length_at = Struct(">i").unpack_from
_CORRELATION_ID_AT = 4
UNLIMITED = 2**31 - 1
"""The number of requests per connection that are joined if no response has to wait."""


class JointProduce:
    """The handler that appends small produce requests together. Owned by `KafkaApis`; used on the event loop's thread.

    The rules and the code of one append apply to the records (`ReplicaManager.append_jointly`). ACLs, quotas and
    metrics apply to each request as to a single request. Other interceptors are not called: they get requests that are
    handled one by one.
    """

    def __init__(
        self,
        services: Services,
        responder: Callable[[ApiKey, int], Respond],
        quotas: QuotaManagers,
        is_authorized: Callable[[Session, str], bool] | None,
    ) -> None:
        """`responder` returns the function that encodes and sends the responses of one version of an API.

        `is_authorized` returns whether the client of a session may write to a topic. With None every client may write.
        """
        self._services = services
        self._replica_manager = services.replica_manager
        self._metadata = services.metadata_cache
        self._versions = services.served[ApiKey.PRODUCE]
        self._responder = responder
        self._quotas = quotas
        self._clock = quotas.stopwatch
        self._is_authorized = is_authorized
        self.meter: RequestMeter | None = None
        """Measures the requests while metrics are enabled."""

    def handle(
        self,
        connections: Sequence[Connection],
        buffer: memoryview,
        parts: list[tuple[int, int]],
        from_write_queue: bool,
    ) -> Iterator[tuple[int, int, bytes | None]]:
        """Handle requests at the beginning of parts `[start, end)` of the buffer, one part per connection.

        Yields as `HandleTogether`: the number of a part, the position after its last handled request, and the
        responses; None if one request waits, and its response is sent later.
        """
        write_queue = self._replica_manager.write_queue
        for key, numbers in group_produces(buffer, parts).items():
            if from_write_queue:
                yield numbers[0], BEFORE_GROUP, None
            elif write_queue.must_wait:
                break  # the connections have their requests wait
            if len(numbers) == 1:
                start, end = parts[numbers[0]]
                if end - start < 2 * (LENGTH_SIZE + _length_at(buffer, start)[0]):
                    continue  # a single request
            group = _Group(key)
            partition = self._find_partition(group)
            if partition is None:
                continue
            # After an error for a batch of an idempotent producer its later batches must be refused, which the general
            # path does.
            numbers = [
                number
                for number in numbers
                if (guard := connections[number].session.sequence_gap_guard) is None or group.entry_key not in guard
            ]
            if (is_authorized := self._is_authorized) is not None:
                numbers = [number for number in numbers if is_authorized(connections[number].session, group.topic_name)]
            group.connections = [connections[number] for number in numbers]
            joined = self._append(group, partition, buffer, [parts[number] for number in numbers])
            if joined is not None:
                for number, end, responses in zip(numbers, joined.ends, joined.responses, strict=True):
                    if responses:
                        yield number, end, None if group.is_waiting else responses

    def _find_partition(self, group: _Group) -> Partition | None:
        """Return the partition of a group, and set its topic's name and key. None for requests that are not joined."""
        version, topic = group.version, group.topic
        if group.acks not in (-1, 1) or not self._versions.lowest <= version <= self._versions.highest:
            return None
        name = self._metadata.names.get(topic) if version >= SINCE_TOPIC_IDS else str(topic, "ascii")
        if name is None:
            return None
        group.topic_name = name
        group.entry_key = topic if version >= SINCE_TOPIC_IDS else name, group.index
        return self._replica_manager.get_partition(name, group.index)

    def _append(
        self, group: _Group, partition: Partition, buffer: memoryview, parts: list[tuple[int, int]]
    ) -> JoinedProduces | None:
        """Append the batches of one group of requests. Returns None if the general path handles the requests instead.

        If the responses wait for a disk or for other replicas, at most one request of each connection is appended: a
        connection handles no other request before its response is sent. The same applies while quotas are set, as the
        response may throttle the client.
        """
        acks, is_decided, is_charged = group.acks, partition.decides_immediately(group.acks), self._quotas.enforced
        most = UNLIMITED if is_decided and not is_charged else 1
        is_single = most == 1 and len(parts) == 1
        if not parts or is_single or self._services.fault("produce-answer-lost"):
            return None
        if is_charged or not (is_decided or self.meter is None):
            group.contexts = list(self._contexts(group, buffer, parts))
        joint = partition.joint_append(buffer, parts, group.key, most)

        def decided(results: list[AppendResult]) -> None:
            group.result = results[0]
            if group.is_waiting:
                assert joint.joined is not None, "the append is awaited"
                self._respond(group, joint.joined)

        request = AppendRequest(acks, group.timeout_ms, decided, JOINT_RULES, validate=joint)
        group.began = self._clock()
        self._replica_manager.append_jointly(group.topic_name, group.index, request)
        group.handled = self._clock()
        joined = joint.joined
        if joined is None or isinstance(group.result, KafkaError):
            return None
        if is_charged:
            self._charge(group, joined)
        if group.result is None:
            group.is_waiting = True
            return joined
        if is_charged:
            for number, response in enumerate(joined.responses):
                if response:
                    joined.responses[number] = settled(group.contexts[number], response)
        if self.meter is not None:
            self._measure(self.meter, group, joined, group.contexts or self._contexts(group, buffer, parts))
        return joined

    def _contexts(self, group: _Group, buffer: memoryview, parts: list[tuple[int, int]]) -> Iterator[RequestContext]:
        """Yield the contexts of the first requests of these parts."""
        for connection, (start, end) in zip(group.connections, parts, strict=True):
            header, _ = decode_request_header(buffer, start + LENGTH_SIZE, end)
            yield RequestContext(header, connection, self._send_error, _length_at(buffer, start)[0])

    def _charge(self, group: _Group, joined: JoinedProduces) -> None:
        """Begin the quota usage of the joined requests, which share the time of the append."""
        seconds = (group.handled - group.began) / (joined.request_count or 1)
        for context, response in zip(group.contexts, joined.responses, strict=True):
            if response:
                user, client_id = context.session.principal.name, context.client_id or ""
                usage = context.quota_usage = RequestQuotaUsage(self._quotas, user, client_id, context.size)
                usage.spend(seconds)

    def _measure(
        self, meter: RequestMeter, group: _Group, joined: JoinedProduces, contexts: Iterable[RequestContext]
    ) -> None:
        """Count and time the joined requests, whose responses are ready or sent; read `contexts` if they are slow."""
        appended = (context for context, response in zip(contexts, joined.responses, strict=True) if response)
        answered = group.answered or group.handled
        ended = answered, self._clock() if group.answered else answered
        joint_meter = meter.joint_meter(ApiKey.PRODUCE, group.version)
        joint_meter.add(joined.request_count, group.began, group.handled, ended, appended)

    def _respond(self, group: _Group, joined: JoinedProduces) -> None:
        """Send the responses to requests that have waited."""
        group.answered = self._clock()
        for number, (connection, response) in enumerate(zip(group.connections, joined.responses, strict=True)):
            if not response:
                continue
            context = group.contexts[number] if group.contexts else None
            if isinstance(group.result, KafkaError):
                header = RequestHeader(ApiKey.PRODUCE, group.version, _length_at(response, _CORRELATION_ID_AT)[0])
                self._respond_with_error(group, context or RequestContext(header, connection, self._send_error))
            else:
                if context is not None and context.quota_usage is not None:
                    response = settled(context, response)
                connection.send([response], len(response))
        if self.meter is not None and group.contexts:
            self._measure(self.meter, group, joined, group.contexts)

    def _respond_with_error(self, group: _Group, context: RequestContext) -> None:
        """Send the error response as the handler of a single request does."""
        from .handlers.produce import PendingProduce

        services = self._services
        request = ProduceEntries(None, group.acks, group.timeout_ms, [group.entry_key], [])
        pending = PendingProduce(context, request, services.metadata_cache, services.fault, services.sliced_work)
        assert group.result is not None, "it is decided"
        pending.respond([group.result])

    def _send_error(self, context: RequestContext, response: Any) -> None:
        """Encode and send an error response."""
        if context.quota_usage is not None:
            context.quota_usage.settle_response(context, response)
        self._responder(ApiKey.PRODUCE, context.api_version)(context, response)


def settled(context: RequestContext, response: bytes) -> bytes:
    """Settle the quotas of a joined request, and return its response with the throttle time."""
    answer = CompactProduceResponse([], [])
    assert context.quota_usage is not None, "quotas are set"
    context.quota_usage.settle_response(context, answer)
    wait_ms = answer.throttle_time_ms
    return with_throttle_time(response, context.api_version, wait_ms) if wait_ms else response


class _Group:
    """Requests of several connections to one partition, which differ only in their batches."""

    __slots__ = (
        "acks",
        "answered",
        "began",
        "connections",
        "contexts",
        "entry_key",
        "handled",
        "index",
        "is_waiting",
        "key",
        "result",
        "timeout_ms",
        "topic",
        "topic_name",
        "version",
    )

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.version, self.acks, self.index, self.timeout_ms = KEY_FRONT.unpack_from(key)
        self.topic = key[KEY_FRONT.size :]
        """Its name, or since version 13 its id."""
        self.topic_name = ""
        self.entry_key: EntryKey = "", -1
        """The partition as in the requests."""
        self.connections: list[Connection] = []
        self.contexts: list[RequestContext] = []
        """The contexts of the requests, one per connection, if they are needed after the append."""
        self.began = self.handled = self.answered = 0.0
        """Times of the stopwatch in seconds. `answered` is 0 without a wait."""
        self.result: AppendResult | None = None
        self.is_waiting = False
