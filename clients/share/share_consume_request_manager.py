"""Requests of a share consumer to the leaders of its partitions: ShareFetch and ShareAcknowledge.

There is one request per broker at a time, because the epochs of a share session are consecutive. Records are fetched
only when the application waits for records, because acquisition locks run from the fetch on. Acknowledgements are sent
with the next fetch. ShareAcknowledge sends renewals, acknowledgements that a caller awaits, and acknowledgements that
no fetch has sent for half a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import Any

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ...protocol.messages.share_fetch import PartitionData, ShareFetchRequest
from ...protocol.topic_partition import TopicIdPartition, TopicPartition
from ..background_tasks import BackgroundTasks
from ..client import Client
from ..cluster import BrokerNode
from ..errors import code_of
from ..wakeup import Wakeup
from .acknowledgements import Acknowledgements, AcknowledgeType
from .share_completed_fetch import ShareCompletedFetch
from .share_fetch_settings import ShareAcquireMode, ShareFetchSettings
from .share_in_flight_batch import ShareInFlightBatch, ShareRecord
from .share_session_handler import ShareSessionHandler

logger = room_logger("clients.share")

AcknowledgementCommitCallback = Callable[[Mapping[TopicPartition, set[int]], KafkaError | None], None]
"""Called with the acknowledged offsets and the broker's error, None for success."""

_LINGER = 0.5
"""Seconds after which acknowledgements are sent without a fetch."""
_FIRST_VERSION = 1
_FIRST_WITH_RENEWALS = 2
_NOT_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_UNKNOWN_TOPIC = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
_TEMPORARY_ERRORS = _NOT_LEADER | _UNKNOWN_TOPIC | {ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR}
"""Errors of a fetched partition after which the client tries again, in addition to retriable ones."""

ByPartition = dict[TopicIdPartition, Acknowledgements]


class _Node:
    """The session with one broker, and the acknowledgements for it."""

    def __init__(self, session: ShareSessionHandler) -> None:
        self.session = session
        self.pending: ByPartition = {}
        self.refused: ByPartition = {}
        """Acknowledgements to send again after a retriable error, before the pending ones of the same partition."""
        self.batches: list[ShareInFlightBatch] = []
        self.flush_at = inf
        self.retry_at = 0.0
        self.failures = 0

    @property
    def has_acknowledgements(self) -> bool:
        return any(self.refused.values()) or any(self.pending.values())

    @property
    def has_renewals(self) -> bool:
        """Return whether a fetch cannot carry the acknowledgements: it would return no records."""
        return any(taken.has_renewals for taken in (*self.refused.values(), *self.pending.values()))

    def take_acknowledgements(self) -> ByPartition:
        """Return the acknowledgements that the next request sends."""
        taken = self.refused
        for tip in [tip for tip, one in self.pending.items() if one and tip not in taken]:
            taken[tip] = self.pending.pop(tip)
        self.refused = {}
        if not any(self.pending.values()):
            self.flush_at = inf
        for one in taken.values():
            one.is_sent = True
        return taken

    def drop_finished(self) -> int:
        """Remove finished batches; return the number of records whose locks have expired without an acknowledgement."""
        expired = sum(batch.take_expired() for batch in self.batches)
        self.batches = [batch for batch in self.batches if batch.open_count]
        return expired


class ShareConsumeRequestManager:
    """The requests of one share consumer: one task, `run`, which starts a background task for each broker."""

    def __init__(
        self,
        client: Client,
        group_id: str,
        member_id: str,
        settings: ShareFetchSettings,
        assigned: Callable[[], Mapping[TopicPartition, TopicIdPartition]],
    ) -> None:
        self.data_ready = Wakeup()
        """Set when the application may find records or an error."""
        self.acquisition_lock_timeout_ms: int | None = None
        """The group's setting, as the last response reports it."""
        self.commit_callback: AcknowledgementCommitCallback | None = None
        self._client = client
        self._group_id = group_id
        self._member_id = member_id
        self._settings = settings
        self._assigned = assigned
        self._nodes: dict[int, _Node] = {}
        self._buffer: deque[ShareCompletedFetch] = deque()
        self._errors: deque[KafkaError] = deque()
        self._retry_at: dict[TopicPartition, float] = {}
        self._wants_records = False
        self._in_flight: set[Acknowledgements] = set()
        self._last_node = -1
        """The broker of the last fetch in record limit mode, in which brokers take turns."""
        self._wakeup = Wakeup()
        self._tasks = BackgroundTasks(self.wake)
        self._is_closing = False
        self._is_closed = False

    def wake(self) -> None:
        """Wake the requests after an assignment, an acknowledgement or new metadata."""
        self._wakeup.set()

    async def run(self) -> None:
        """Send requests until cancelled."""
        loop = asyncio.get_running_loop()
        self._client.on_metadata(self.wake)
        while True:
            self._wakeup.clear()
            next_at = self._step(loop.time())
            await self._wakeup.wait(next_at)
            self._tasks.raise_failure()

    # The application

    def fetch_more(self) -> None:
        """Fetch until the next response with acquired records."""
        if not self._wants_records:
            self._wants_records = True
            self.wake()

    def take(self, max_records: int) -> list[ShareRecord]:
        """Return up to this number of acquired records whose locks have not expired. Raises the error of a partition
        (KafkaError) once, if there is no record before it.
        """
        self.data_ready.clear()
        taken: list[ShareRecord] = []
        while self._buffer and len(taken) < max_records:
            fetch = self._buffer[0]
            batch = fetch.in_flight
            room = max_records - len(taken)
            try:
                records = fetch.take(room, self.pending(batch.node_id, batch.partition))
            except KafkaError as error:
                self._errors.append(error)
                break
            # Another member may already have a record whose lock has expired.
            taken += [record for record in records if not batch.is_expired(record)]
            if len(records) < room and not fetch.has_error:
                self._buffer.popleft()
        if not taken and self._errors:
            raise self._errors.popleft()
        return taken

    def pending(self, node_id: int, partition: TopicIdPartition) -> Acknowledgements:
        """Return the acknowledgements that the next request to this broker sends for the partition. Raises
        RuntimeError after `close`.
        """
        if self._is_closed:
            raise RuntimeError("the consumer is closed; its records were released")
        loop = asyncio.get_running_loop()
        node = self._node(node_id)
        taken = node.pending.get(partition)
        if taken is None:
            send_until = loop.time() + self._settings.default_api_timeout_ms / 1000
            taken = node.pending[partition] = Acknowledgements(partition, send_until, partial(self._flush, node))
            if node.flush_at == inf:
                node.flush_at = loop.time() + _LINGER
                self.wake()
        return taken

    def supports_renewals(self, node_id: int) -> bool:
        """Return whether the broker supports renewals, as far as that is known."""
        connection = self._client.open_connection(node_id)
        return connection is None or connection.supports(ApiKey.SHARE_ACKNOWLEDGE, _FIRST_WITH_RENEWALS)

    def flush(self) -> list[Acknowledgements]:
        """Send all acknowledgements without waiting for a fetch; return all acknowledgements without a result."""
        for node in self._nodes.values():
            if node.has_acknowledgements:
                self._flush(node)
        nodes = self._nodes.values()
        waiting = [one for node in nodes for one in (*node.refused.values(), *node.pending.values()) if one]
        return [*self._in_flight, *waiting]

    def _flush(self, node: _Node) -> None:
        node.flush_at = -inf
        self.wake()

    async def close(self, timeout_ms: int) -> None:
        """Send the acknowledgements and close the sessions, within `timeout_ms`: the brokers then release the records
        that are not acknowledged.
        """
        self._is_closing = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._tasks.wait()
                await asyncio.gather(*map(self._close_session, list(self._nodes)))
        except TimeoutError:
            logger.warning("group %s: share sessions were not closed within %d ms", self._group_id, timeout_ms)
        finally:
            self._is_closed = True
            await self._tasks.close()
            error = KafkaError(ErrorCode.NETWORK_EXCEPTION, "the consumer was closed before the acknowledgement")
            for node in self._nodes.values():
                self._complete_all(node, node.take_acknowledgements().values(), error)
                self._complete_all(node, node.take_acknowledgements().values(), error)
            for one in list(self._in_flight):
                self._complete(None, one, error)

    # Steps

    def _node(self, node_id: int) -> _Node:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node(ShareSessionHandler(self._member_id))
        return node

    def _step(self, now: float) -> float:
        """Start the requests that are due; return the time of the next step."""
        self._client.maybe_refresh()
        led: dict[int, list[TopicIdPartition]] = {}
        next_at = self._client.refresh_due_at
        for partition, tip in self._assigned().items():
            leader = self._client.cluster.leader(partition)
            retry_at = self._retry_at.get(partition, 0.0)
            if retry_at > now:
                next_at = min(next_at, retry_at)
            elif leader is None:
                self._client.refresh_soon()
            else:
                led.setdefault(leader, []).append(tip)
        fetched = self._fetched_nodes(led)
        for node_id in {*self._nodes, *led}:
            next_at = min(next_at, self._step_node(node_id, led.get(node_id, []), now, may_fetch=node_id in fetched))
        return next_at

    def _fetched_nodes(self, led: Iterable[int]) -> Iterable[int]:
        """Return the brokers to fetch from: in record limit mode one at a time, so that their sum keeps the limit."""
        if not self._wants_records:
            return ()
        nodes = sorted(led)
        if self._settings.acquire_mode is ShareAcquireMode.BATCH_OPTIMIZED or not nodes:
            return nodes
        if self._tasks.is_running(self._last_node):
            return ()
        self._last_node = next((node_id for node_id in nodes if node_id > self._last_node), nodes[0])
        return (self._last_node,)

    def _step_node(self, node_id: int, led: list[TopicIdPartition], now: float, *, may_fetch: bool) -> float:
        """Start the request to one broker that is due, if any; return the time of the next one."""
        if self._tasks.is_running(node_id):
            return inf
        node = self._node(node_id)
        self._give_up(node, now)
        if node_id not in self._client.cluster.brokers:
            self._forget(node_id, node)
            return inf
        if node.retry_at > now:
            return node.retry_at
        is_due = node.has_acknowledgements and (node.flush_at <= now or node.has_renewals)
        if is_due and not node.session.is_new:
            self._tasks.run(node_id, partial(self._acknowledge, node_id, node))
        elif is_due and not led:
            # Only a fetch opens a session, and there is no partition to fetch.
            error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node_id} leads no partition of the member")
            self._complete_all(node, node.take_acknowledgements().values(), error)
        elif is_due or (may_fetch and led):
            self._tasks.run(node_id, partial(self._fetch, node_id, node, led, can_wait=not is_due))
        elif not (led or node.session.is_new or node.batches or node.has_acknowledgements):
            self._tasks.run(node_id, partial(self._close_session, node_id))
        elif node.has_acknowledgements:
            return node.flush_at
        return inf

    def _give_up(self, node: _Node, now: float) -> None:
        """Remove records whose locks have expired, and acknowledgements that were not sent before their deadline."""
        expired = node.drop_finished()
        if expired:
            logger.warning(
                "group %s: %d records were not acknowledged within %s ms (acquisition_lock_timeout_ms); they are "
                "delivered again",
                self._group_id,
                expired,
                self.acquisition_lock_timeout_ms,
            )
        for waiting in (node.refused, node.pending):
            for tip, taken in list(waiting.items()):
                if not taken:
                    del waiting[tip]
                elif taken.send_until <= now:
                    del waiting[tip]
                    error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"acknowledgement of {tip.topic_partition}")
                    self._complete(node, taken, error)
        if not node.has_acknowledgements:
            node.flush_at = inf

    def _forget(self, node_id: int, node: _Node) -> None:
        """Drop the session with a broker that has left the cluster."""
        self._lose_session(node_id, node)
        del self._nodes[node_id]

    def _back_off(self, node: _Node) -> None:
        node.failures += 1
        node.retry_at = asyncio.get_running_loop().time() + self._client.retry_backoff.delay(node.failures)

    # ShareAcknowledge

    async def _acknowledge(self, node_id: int, node: _Node) -> None:
        taken = self._begin(node)
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            is_renew_ack=any(AcknowledgeType.RENEW in one.types.values() for one in taken.values()),
        )
        node.session.fill_acknowledge(request, taken)
        response = await self._send(node_id, node, request, taken)
        if response is None:
            return
        code = code_of(response.error_code)
        is_final = node.session.is_closing
        node.session.answered(code)
        if code is not ErrorCode.NONE and not is_final:
            self._handle_top_level_error(node_id, node, code, response.error_message, taken)
            return
        node.failures = 0
        self._client.cluster.add_brokers(BrokerNode(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints)
        self._update_lock_timeout(response.acquisition_lock_timeout_ms)
        by_id = {(tip.topic_id, tip.partition): tip for tip in taken}
        for topic in response.responses:
            for data in topic.partitions:
                tip = by_id.get((topic.topic_id, data.partition_index))
                if tip is not None:
                    error = code_of(data.error_code)
                    self._update_leader(tip, error, data.current_leader)
                    self._handle_result(node, taken.pop(tip), error, data.error_message)
        self._complete_all(node, taken.values(), _without_result())

    async def _close_session(self, node_id: int) -> None:
        node = self._nodes[node_id]
        if not node.session.is_new and node.refused and node.pending:
            # A request has one set of acknowledgements for each partition: the refused ones are sent first.
            await self._acknowledge(node_id, node)
        if not node.session.is_new:
            node.session.close()
            await self._acknowledge(node_id, node)
        if not node.has_acknowledgements and self._nodes.get(node_id) is node:
            del self._nodes[node_id]

    # ShareFetch

    async def _fetch(self, node_id: int, node: _Node, led: list[TopicIdPartition], *, can_wait: bool) -> None:
        settings = self._settings
        taken = {} if node.session.is_new else self._begin(node)
        known = {*node.session.partitions, *led, *taken}
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            max_wait_ms=settings.max_wait_ms if can_wait else 0,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            max_records=settings.max_poll_records,
            batch_size=settings.max_poll_records,
            share_acquire_mode=settings.acquire_mode.wire_id,
        )
        node.session.fill_fetch(request, led, taken)
        response = await self._send(node_id, node, request, taken)
        if response is None:
            return
        code = code_of(response.error_code)
        node.session.answered(code)
        if code is not ErrorCode.NONE:
            self._handle_top_level_error(node_id, node, code, response.error_message, taken)
            return
        node.failures = 0
        self._client.cluster.add_brokers(BrokerNode(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints)
        self._update_lock_timeout(response.acquisition_lock_timeout_ms)
        by_id = {(tip.topic_id, tip.partition): tip for tip in known}
        for topic in response.responses:
            for data in topic.partitions:
                tip = by_id.get((topic.topic_id, data.partition_index))
                if tip is None:
                    logger.warning("broker %d: a ShareFetch response has an unknown partition", node_id)
                    continue
                if tip in taken:
                    error = code_of(data.acknowledge_error_code)
                    self._handle_result(node, taken.pop(tip), error, data.acknowledge_error_message)
                self._add_records(node_id, node, tip, data)
        self._complete_all(node, taken.values(), _without_result())

    def _add_records(self, node_id: int, node: _Node, tip: TopicIdPartition, data: PartitionData) -> None:
        error = code_of(data.error_code)
        self._update_leader(tip, error, data.current_leader)
        if error is not ErrorCode.NONE:
            loop = asyncio.get_running_loop()
            self._retry_at[tip.topic_partition] = loop.time() + self._client.retry_backoff.delay(1)
            if not (error.retriable or error in _TEMPORARY_ERRORS):
                self._raise_later(KafkaError(error, data.error_message or f"share fetch of {tip.topic_partition}"))
            return
        if not data.acquired_records or self._is_closing:
            return
        loop = asyncio.get_running_loop()
        lock_seconds = (self.acquisition_lock_timeout_ms or 0) / 1000 or inf
        batch = ShareInFlightBatch(self, node_id, tip, loop.time() + lock_seconds, loop.time)
        node.batches.append(batch)
        self._buffer.append(
            ShareCompletedFetch(
                batch, memoryview(data.records), data.acquired_records, check_crcs=self._settings.check_crcs
            )
        )
        self._wants_records = False
        self.data_ready.set()

    # Both requests

    def _begin(self, node: _Node) -> ByPartition:
        taken = node.take_acknowledgements()
        self._in_flight.update(taken.values())
        return taken

    async def _send(self, node_id: int, node: _Node, request: Any, taken: ByPartition) -> Any:
        """Return the response. None after an error: a broker ends a session with its connection."""
        settings = self._settings
        try:
            connection = await self._client.connection(node_id)
            is_fetch = isinstance(request, ShareFetchRequest)
            key = ApiKey.SHARE_FETCH if is_fetch else ApiKey.SHARE_ACKNOWLEDGE
            needs_newest = not is_fetch and request.is_renew_ack
            version = connection.version_for(key, lowest=_FIRST_WITH_RENEWALS if needs_newest else _FIRST_VERSION)
            timeout_ms = settings.request_timeout_ms + (request.max_wait_ms if is_fetch else 0)
            return await connection.send(request, version, timeout_ms=timeout_ms)
        except KafkaError as error:
            logger.info("a share request to broker %d has failed: %s", node_id, error)
            self._complete_all(node, taken.values(), error)
            self._lose_session(node_id, node)
            self._back_off(node)
            self._client.refresh_soon()
            if not error.code.retriable:
                self._raise_later(error)
            return None

    def _lose_session(self, node_id: int, node: _Node) -> None:
        """Open a new session later. The broker has released the records of the lost session: they are not returned any
        more, and their acknowledgements fail without a request, because the broker would reject valid ones with them.
        """
        node.session.reset()
        for batch in node.batches:
            batch.expire()
        node.batches = []
        self._buffer = deque(fetch for fetch in self._buffer if fetch.in_flight.node_id != node_id)
        error = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the share session with broker {node_id} was lost")
        while node.has_acknowledgements:
            self._complete_all(node, node.take_acknowledgements().values(), error)

    def has_moved(self, node_id: int, partition: TopicIdPartition) -> bool:
        """Return whether the partition has a new leader: the records that the former one delivered are released."""
        leader = self._client.cluster.leader(partition.topic_partition)
        return leader is not None and leader != node_id

    def _handle_top_level_error(
        self, node_id: int, node: _Node, code: ErrorCode, message: str | None, taken: ByPartition
    ) -> None:
        """Apply the top-level error of a response."""
        logger.debug("group %s: broker %d returned %s", self._group_id, node_id, code.name)
        self._back_off(node)
        is_session_lost = code in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if code in _UNKNOWN_TOPIC:
            self._client.refresh_soon()
        result = ErrorCode.NETWORK_EXCEPTION if is_session_lost else code
        self._complete_all(
            node, taken.values(), KafkaError(result, message or f"the share session was lost: {code.name}")
        )
        if code is ErrorCode.SHARE_SESSION_NOT_FOUND:
            self._lose_session(node_id, node)
        is_temporary = code.retriable or code in _TEMPORARY_ERRORS or code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        if not (is_temporary or is_session_lost):
            self._raise_later(KafkaError(code, message or f"group {self._group_id!r}"))

    def _raise_later(self, error: KafkaError) -> None:
        """Let the next read raise the error, and fetch again after it."""
        self._wants_records = False
        if not self._errors:
            self._errors.append(error)
        self.data_ready.set()

    def _update_lock_timeout(self, timeout_ms: int) -> None:
        if timeout_ms > 0:
            self.acquisition_lock_timeout_ms = timeout_ms

    def _update_leader(self, tip: TopicIdPartition, error: ErrorCode, leader: Any) -> None:
        """Apply the new leader in an error response, or request new metadata."""
        if error in _NOT_LEADER and leader.leader_id >= 0 and leader.leader_epoch >= 0:
            self._client.cluster.update_leader(tip.topic_partition, leader.leader_id, leader.leader_epoch)
        elif error in _NOT_LEADER or error in _UNKNOWN_TOPIC or (error is not ErrorCode.NONE and error.retriable):
            self._client.refresh_soon()

    def _handle_result(self, node: _Node, taken: Acknowledgements, error: ErrorCode, message: str | None) -> None:
        """Complete the acknowledgements of one partition, or send them again after a temporary error."""
        if error is ErrorCode.NONE:
            self._complete(node, taken, None)
        elif error.retriable and error not in _NOT_LEADER and error not in _UNKNOWN_TOPIC and not self._is_closing:
            self._return(node, {taken.partition: taken})
            self._back_off(node)
        else:
            text = message or f"acknowledgement of {taken.partition.topic_partition}"
            self._complete(node, taken, KafkaError(error, text))

    def _return(self, node: _Node, taken: ByPartition) -> None:
        """Send these acknowledgements again."""
        self._in_flight.difference_update(taken.values())
        node.refused |= taken
        if taken:
            node.flush_at = -inf

    def _complete_all(self, node: _Node, taken: Iterable[Acknowledgements], error: KafkaError | None) -> None:
        for one in list(taken):
            self._complete(node, one, error)

    def _complete(self, node: _Node | None, taken: Acknowledgements, error: KafkaError | None) -> None:
        self._in_flight.discard(taken)
        partition = taken.partition.topic_partition
        if error is None and node is not None and taken.has_renewals:
            expires_at = asyncio.get_running_loop().time() + ((self.acquisition_lock_timeout_ms or 0) / 1000 or inf)
            for batch in node.batches:
                if batch.partition == taken.partition:
                    batch.renewed(taken, expires_at)
        elif error is not None and taken.types:
            logger.info("group %s: %d acknowledgements of %s: %s", self._group_id, len(taken.types), partition, error)
        taken.complete(error)
        if self.commit_callback is not None and taken.types:
            try:
                self.commit_callback({partition: set(taken.types)}, error)
            except Exception:
                # Other acknowledgements still have to be completed.
                logger.exception("group %s: the acknowledgement commit callback failed", self._group_id)


def _without_result() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, "the broker's response has no result for the partition")
