"""Sends batches from the accumulator to the leaders, and processes the responses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import inf

from ..common.room_logger import room_logger
from ..protocol.apis import ApiKey
from ..protocol.compression import Compression
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ..protocol.negotiation import last_version
from ..protocol.producer_identity import ProducerIdentity
from ..protocol.schema import ZERO_UUID
from ..protocol.topic_partition import TopicPartition
from .accumulator import PartitionQueue, ProducerBatch, RecordAccumulator
from .background_tasks import BackgroundTasks
from .client import Client
from .cluster import BrokerNode
from .connection import BrokerConnection
from .errors import DeliveryTimeoutError, UnsupportedVersionError, code_of
from .transactions import FIRST_PRODUCE_V2, LAST_PRODUCE_V1, TransactionManager
from .wakeup import Wakeup

logger = room_logger("clients")

RETRY_WARNING_SECONDS = 2.0
"""Repeated requests are logged if their batch is at least this old. Elections of leaders take less time."""
MAX_PRODUCER_EPOCH = 0x7FFF
_NO_TRANSACTION_TIMEOUT_MS = 0x7FFFFFFF
_FIRST_VERSION_WITH_BATCHES = 3
_FIRST_VERSION_WITH_ZSTD = 7
_BATCH_OVERHEAD = 200
_OUTCOME_UNKNOWN = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION})


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """Settings of the sender."""

    acks: int
    idempotent: bool | None
    """None: idempotent if the brokers support it."""
    max_in_flight: int
    max_request_size: int
    request_timeout_ms: int
    retries: int
    transactional_id: str | None = None


class Sender:
    """The sender of one producer: one task, `run`, which alone removes from the queues; all methods run on its event
    loop.
    """

    def __init__(self, client: Client, accumulator: RecordAccumulator, settings: SenderSettings) -> None:
        self._client = client
        self._accumulator = accumulator
        self._settings = settings
        self._wakeup = Wakeup()
        self._idempotent = bool(settings.idempotent)
        self._identity: ProducerIdentity | None = None
        self._no_identity: KafkaError | None = None
        """The last error of a request for a producer id."""
        self._background_tasks = BackgroundTasks(self.wake)
        self._warned: set[TopicPartition] = set()
        """Partitions whose repeated requests were logged since the last acknowledgement."""
        self._answers: deque[tuple[list[ProducerBatch], asyncio.Future[ProduceResponse | None]]] = deque()
        """Completed requests for `run` to process: at most `max_in_flight` per broker."""
        self.transactions: TransactionManager | None = None
        """Called when records of a transaction are abandoned."""

    def wake(self) -> None:
        """Wake the sender: there may be work."""
        self._wakeup.set()

    async def start(self) -> None:
        """Decide about idempotence and request a producer id. Raises UnsupportedVersionError, KafkaError."""
        self._client.on_metadata(self.wake)
        wanted = self._settings.idempotent
        if wanted is False:
            return
        connection = await self._client.any_connection()
        self._idempotent = connection.supports(ApiKey.INIT_PRODUCER_ID)
        if wanted and not self._idempotent:
            raise UnsupportedVersionError(
                f"broker {connection.address} does not support idempotent producers (requires 0.11)"
            )

    def use(self, identity: ProducerIdentity) -> None:
        """Use this producer identity from now on. No batch is in flight."""
        self._identity = identity
        for queue in self._accumulator.queues.values():
            queue.start_over(identity)

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wakeup.clear()
            while self._answers:
                self._take_in(*self._answers.popleft())
            next_at = self._step(loop.time())
            await self._wakeup.wait(next_at)
            self._background_tasks.raise_failure()

    async def close(self) -> None:
        """Stop the background tasks."""
        await self._background_tasks.close()

    # Choosing batches

    def _step(self, now: float) -> float:
        """Send all due batches; return the time of the next step."""
        self._client.maybe_refresh()
        next_at = inf
        queues_by_leader: dict[int, list[PartitionQueue]] = {}
        for queue in self._accumulator.queues.values():
            if not queue.batches:
                continue
            next_at = min(next_at, self._expire(queue, now))
            if queue.needs_reset and not queue.on_wire:
                self._reset(queue)
            if not queue.may_send(idempotent=self._idempotent, serial=self._settings.max_in_flight == 1):
                continue
            ready_at = self._accumulator.ready_at(queue)
            leader = self._client.cluster.leader(queue.partition)
            if ready_at > now:
                next_at = min(next_at, ready_at)
            elif leader is None:
                self._client.refresh_soon()
            else:
                queues_by_leader.setdefault(leader, []).append(queue)
        if self._idempotent and self._identity is None and queues_by_leader:
            self._background_tasks.run(ApiKey.INIT_PRODUCER_ID, self._init_producer_id)
            return next_at
        for leader, queues in queues_by_leader.items():
            self._send_to(leader, queues)
        return next_at

    def _expire(self, queue: PartitionQueue, now: float) -> float:
        """Abandon batches that have waited longer than `delivery_timeout_ms`; return the time of the next
        expiration.
        """
        while queue.batches:
            batch = queue.batches[0]
            deadline = batch.created + self._accumulator.settings.delivery_timeout
            if now < deadline:
                return deadline
            queue.batches.popleft()
            waited_ms = round((now - batch.created) * 1000)
            error = DeliveryTimeoutError(f"{queue.partition}: not acknowledged in {waited_ms} ms{self._why(batch)}")
            self._give_up(queue, batch, error)
        return inf

    def _why(self, batch: ProducerBatch) -> str:
        """Return the reason why the batch has not been written, if it is known."""
        if batch.trouble is None and self._idempotent and self._identity is None:
            return f": {self._no_identity}" if self._no_identity else ""
        if batch.trouble is None and self._client.cluster.leader(batch.partition) is None:
            return ": the partition has no leader"
        return f": {batch.trouble}" if batch.trouble else ""

    def _send_to(self, leader: int, queues: list[PartitionQueue]) -> None:
        connection = self._client.open_connection(leader)
        if connection is None:
            self._background_tasks.run(leader, partial(self._connect, leader))
            return
        while queues and connection.has_room:
            if not connection.is_writable:
                self._background_tasks.run(leader, partial(self._await_writable, connection))
                return
            batches: list[ProducerBatch] = []
            size = 0
            for queue in queues:
                if batches and size + self._size_of(queue.batches[0]) > self._settings.max_request_size:
                    break
                batch = queue.take(self._identity)
                assert batch.encoded is not None
                batches.append(batch)
                size += len(batch.encoded)
            self._send(connection, batches)
            serial = self._settings.max_in_flight == 1
            now = asyncio.get_running_loop().time()
            queues = [
                queue
                for queue in queues
                if queue.may_send(idempotent=self._idempotent, serial=serial)
                and self._accumulator.ready_at(queue) <= now
            ]
        # Partitions that were sent last are first the next time: a busy partition must not starve others.
        for queue in queues:
            self._accumulator.queues[queue.partition] = self._accumulator.queues.pop(queue.partition)

    @staticmethod
    def _size_of(batch: ProducerBatch) -> int:
        """Return the bytes of the batch, an upper bound before its compression."""
        if batch.encoded is not None:
            return len(batch.encoded) + _BATCH_OVERHEAD
        assert batch.builder is not None
        return batch.builder.size + _BATCH_OVERHEAD

    # Requests

    def _send(self, connection: BrokerConnection, batches: list[ProducerBatch]) -> None:
        settings = self._settings
        try:
            topic_ids = {b.partition.topic: self._client.cluster.topic_id(b.partition.topic) for b in batches}
            highest = last_version(ApiKey.PRODUCE, by_name=ZERO_UUID in topic_ids.values())
            lowest = 0
            if self.transactions is not None and self.transactions.is_v2:
                lowest = FIRST_PRODUCE_V2
            elif self.transactions is not None:
                highest = LAST_PRODUCE_V1
            version = connection.version_for(ApiKey.PRODUCE, lowest=lowest, highest=highest)
            zstd = self._accumulator.settings.compression == Compression.ZSTD
            if zstd and version < _FIRST_VERSION_WITH_ZSTD:
                raise UnsupportedVersionError(f"broker {connection.address} does not support zstd (requires 2.1)")
            topics: dict[str, TopicProduceData] = {}
            for batch in batches:
                name = batch.partition.topic
                topic = topics.setdefault(name, TopicProduceData(name=name, topic_id=topic_ids[name]))
                records = batch.encoded if version >= _FIRST_VERSION_WITH_BATCHES else batch.legacy_bytes()
                topic.partition_data.append(PartitionProduceData(index=batch.partition.partition, records=records))
            request = ProduceRequest(
                transactional_id=settings.transactional_id,
                acks=settings.acks,
                timeout_ms=settings.request_timeout_ms,
                topic_data=list(topics.values()),
            )
            future = connection.send(request, version, expects_response=settings.acks != 0)
        except KafkaError as error:
            for batch in batches:
                self._on_error(batch, error)
            return
        future.add_done_callback(partial(self._on_response, batches))

    def _on_response(self, batches: list[ProducerBatch], future: asyncio.Future[ProduceResponse | None]) -> None:
        self._answers.append((batches, future))
        self._wakeup.set()

    def _take_in(self, batches: list[ProducerBatch], future: asyncio.Future[ProduceResponse | None]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, KafkaError):
            for batch in batches:
                self._on_error(batch, error)
            return
        assert error is None, error
        response = future.result()
        if response is None:
            for batch in batches:
                self._acknowledge(batch, PartitionProduceResponse(base_offset=-1))
            return
        self._learn_leaders(response)
        answers = {
            (topic.name or self._client.cluster.topic_name(topic.topic_id), answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get((batch.partition.topic, batch.partition.partition))
            if answer is None:
                self._on_error(
                    batch, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "the response does not contain the partition")
                )
            elif answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._acknowledge(batch, answer)
            else:
                record_errors = {e.batch_index: e.batch_index_error_message or "" for e in answer.record_errors}
                code, reason = code_of(answer.error_code), answer.error_message or f"partition {batch.partition}"
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    reason = self._client.describe_denial("Write", f"topic {batch.partition.topic}")
                self._on_error(batch, KafkaError(code, reason), record_errors)

    def _learn_leaders(self, response: ProduceResponse) -> None:
        """Apply the new leaders in an error response (KIP-951)."""
        cluster = self._client.cluster
        cluster.add_brokers(BrokerNode(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints)
        for topic in response.responses:
            name = topic.name or cluster.topic_name(topic.topic_id)
            for answer in topic.partition_responses:
                leader = answer.current_leader
                if name is not None and leader.leader_id >= 0:
                    cluster.update_leader(TopicPartition(name, answer.index), leader.leader_id, leader.leader_epoch)

    # Results of batches

    def _acknowledge(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        queue = self._accumulator.queues[batch.partition]
        queue.returned(batch)
        queue.settled(batch)
        if self._warned:
            self._warned.discard(batch.partition)
        queue.is_established = queue.is_established or batch.identity == queue.identity
        batch.complete(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
        self._accumulator.release(batch)

    def _on_error(self, batch: ProducerBatch, error: KafkaError, record_errors: dict[int, str] | None = None) -> None:
        queue = self._accumulator.queues[batch.partition]
        queue.returned(batch)
        if error.code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            parts = batch.split()
            queue.replace(batch, parts)
            self._accumulator.replace(batch, parts)
            self._wakeup.set()
            return
        oldest = not queue.unacked or queue.unacked[0] is batch
        if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (not oldest or queue.has_gap or queue.needs_reset):
            # A sequence before this batch is missing in the log. If it will not be sent again, start over.
            queue.needs_reset = queue.needs_reset or (oldest and queue.has_gap)
            self._retry(queue, batch, error)
        elif error.code.retriable and batch.attempts < self._settings.retries:
            logger.debug("sending %s again after %s", batch.partition, error)
            if error.code != ErrorCode.CORRUPT_MESSAGE:
                self._client.refresh_soon()  # a leader with too few replicas may have been replaced without noticing
            self._retry(queue, batch, error)
        else:
            self._give_up(queue, batch, error, record_errors)

    def _retry(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        now = asyncio.get_running_loop().time()
        batch.attempts += 1
        batch.trouble = error
        batch.retry_at = now + self._client.retry_backoff.delay(batch.attempts)
        if now - batch.created >= RETRY_WARNING_SECONDS and batch.partition not in self._warned:
            # Until `delivery_timeout_ms` is over, two minutes by default, nothing else reports a full disk.
            self._warned.add(batch.partition)
            logger.warning("records for %s are not written yet, and are sent again: %s", batch.partition, error)
        queue.put_back(batch)
        self._wakeup.set()

    def _give_up(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: KafkaError,
        record_errors: dict[int, str] | None = None,
    ) -> None:
        logger.warning("%d records for %s were not delivered: %s", batch.record_count, batch.partition, error)
        if self.transactions is not None:
            self.transactions.failed(error)
        if batch.has_sequence:
            if error.code in _OUTCOME_UNKNOWN:
                queue.has_gap = True
            else:
                queue.needs_reset = True
        queue.settled(batch)
        batch.fail(error, record_errors)
        self._accumulator.release(batch)

    def _reset(self, queue: PartitionQueue) -> None:
        """Continue at sequence 0 with a newer epoch; other partitions change when they have no unacked batches.

        A transaction has failed with its lost records: the rest of it is not sent.
        """
        if self.transactions is not None:
            error = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "other records of the transaction were not delivered")
            while queue.batches:
                self._give_up(queue, queue.batches.popleft(), error)
            return
        if self._identity is not None and queue.identity == self._identity:
            producer_id, epoch = self._identity
            self._identity = ProducerIdentity(producer_id, epoch + 1) if epoch < MAX_PRODUCER_EPOCH else None
        if self._identity is None:
            self._background_tasks.run(ApiKey.INIT_PRODUCER_ID, self._init_producer_id)
        else:
            queue.start_over(self._identity)

    # Background tasks, for which a step does not wait

    async def _connect(self, leader: int) -> None:
        try:
            await self._client.connection(leader)
        except KafkaError:
            self._client.refresh_soon()
            raise

    async def _await_writable(self, connection: BrokerConnection) -> None:
        await connection.writable()

    async def _init_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)

        async def ask() -> InitProducerIdResponse:
            response = await self._client.ask(None, request)
            assert isinstance(response, InitProducerIdResponse)
            if response.error_code != ErrorCode.NONE:
                code, reason = code_of(response.error_code), "no producer id: the request failed"
                if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    denial = self._client.describe_denial("Write", "any topic, or for IdempotentWrite on the cluster")
                    reason = f"no producer id: {denial}"
                raise KafkaError(code, reason)
            return response

        try:
            response = await self._client.retrying(ask, timeout_ms=self._settings.request_timeout_ms)
        except KafkaError as error:
            self._no_identity = error
            if not error.code.retriable:
                self._fail_all(error)
            raise
        self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)

    def _fail_all(self, error: KafkaError) -> None:
        for queue in self._accumulator.queues.values():
            while queue.batches:
                self._give_up(queue, queue.batches.popleft(), error)

    def abandon(self, batches: Iterable[ProducerBatch], error: KafkaError) -> None:
        """Fail the remaining batches when the producer closes."""
        for batch in list(batches):
            batch.fail(error)
            self._accumulator.release(batch)
