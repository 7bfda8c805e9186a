"""The producer: `send` adds records to batches, a background task sends the batches to the leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from types import TracebackType
from typing import Literal, Self, TypeVar

from ..common.room_logger import room_logger
from ..protocol.compression import CODEC_BY_CONFIG_NAME, Compression
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.record import Headers
from ..protocol.record_codec import RecordRun, encode_headers
from ..protocol.topic_partition import TopicPartition
from .accumulator import MAX_UNACKED, RECORD_OVERHEAD, BatchSettings, PendingRecord, RecordAccumulator, RecordMetadata
from .client import Client
from .cluster import TopicInfo
from .connection import ConnectionOptions
from .errors import BufferFullError
from .host import new_random, now_ms
from .partitioner import DefaultPartitioner, Partitioner
from .security import PLAINTEXT, Security
from .sender import Sender, SenderSettings
from .transactions import ProducerTransaction, TransactionManager

logger = room_logger("clients")

R = TypeVar("R")
Acks = Literal["all", -1, 0, 1]
_ACKS = {"all": -1, "-1": -1, -1: -1, "0": 0, 0: 0, "1": 1, 1: 1}


class Producer:
    """An asyncio producer. Settings have the names and defaults of Kafka's Java producer, with `_` instead of `.`.

    The exceptions are `compression` (`compression.type`) and `max_in_flight` (`max.in.flight.requests.per.connection`).

        async with Producer("localhost:9092", compression="zstd") as producer:
            future = await producer.send("flights", b"EWR to IAH", key=b"N14228")
            metadata = await future

    With a `transactional_id` records are sent in transactions, which are committed as a whole or not at all:

        async with Producer("localhost:9092", transactional_id="copier") as producer:
            async with producer.transaction() as transaction:
                await producer.send("copies", record.value)
                await transaction.send_offsets({record.topic_partition: record.offset + 1}, consumer.group_metadata())

    `enable_idempotence` None means: yes, if acks is "all" and the brokers are able to (0.11). `rng` and `wall_clock_ms`
    are for tests that want the same run twice.
    """

    _task: asyncio.Task[None] | None = None
    _closed = False

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas-producer",
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        acks: Acks = "all",
        enable_idempotence: bool | None = None,
        compression: str = "none",
        compression_level: int | None = None,
        batch_size: int = 16_384,
        linger_ms: float = 5,
        buffer_memory: int = 33_554_432,
        max_block_ms: int = 60_000,
        max_request_size: int = 1_048_576,
        max_in_flight: int = 5,
        retries: int = 2_147_483_647,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        request_timeout_ms: int = 30_000,
        socket_connection_setup_timeout_ms: int | None = None,
        delivery_timeout_ms: int = 120_000,
        metadata_max_age_ms: int = 300_000,
        metadata_max_idle_ms: int = 300_000,
        partitioner: Partitioner | None = None,
        security: Security = PLAINTEXT,
        rng: Random | None = None,
        wall_clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        how = ConnectionOptions(client_id, request_timeout_ms, socket_connection_setup_timeout_ms, security=security)
        self._client = Client(
            bootstrap_servers,
            rng=(rng := rng or new_random()),
            options=replace(how, max_in_flight=max_in_flight),
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            metadata_max_idle_ms=metadata_max_idle_ms,
        )
        batches = BatchSettings(
            *(batch_size, _codec(compression), compression_level),
            linger=linger_ms / 1000,
            delivery_timeout=delivery_timeout_ms / 1000,
            is_transactional=transactional_id is not None,
        )
        sending = SenderSettings(
            acks=_acks(acks),
            idempotent=_idempotent(transactional_id is not None or enable_idempotence, _acks(acks), max_in_flight),
            max_in_flight=max_in_flight,
            max_request_size=max_request_size,
            request_timeout_ms=request_timeout_ms,
            retries=retries,
            transactional_id=transactional_id,
        )
        self._accumulator = RecordAccumulator(batches, buffer_memory=buffer_memory, wake=self._wake)
        self._sender = Sender(self._client, self._accumulator, sending)
        self._transactions = self._transactions_of(transactional_id, transaction_timeout_ms, max_block_ms)
        self._partitioner = partitioner or DefaultPartitioner(batch_size, rng)
        self._max_request_size, self._max_block_ms, self._wall_clock_ms = max_request_size, max_block_ms, wall_clock_ms

    def _transactions_of(
        self, transactional_id: str | None, transaction_timeout_ms: int, max_block_ms: int
    ) -> TransactionManager | None:
        if transactional_id is None:
            return None
        manager = TransactionManager(
            self._client,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            max_block_ms=max_block_ms,
            use=self._sender.use,
        )
        self._sender.transactions = manager
        return manager

    async def start(self) -> Self:
        """Reach the cluster; with a transactional id, be its only producer. Raises KafkaError."""
        self._client.keep_topics(self._used_topics)
        await self._client.start()
        await self._sender.start()
        if self._transactions is not None:
            await self._transactions.init()
        self._task = asyncio.get_running_loop().create_task(self._sender.run())
        self._task.add_done_callback(self._sender_ended)
        return self

    async def close(self, timeout_ms: int | None = None) -> None:
        """Deliver the queued records, then stop; records that are undelivered after `timeout_ms` fail."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._task is not None:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self.flush()
        except TimeoutError:
            pass  # documented above: the remaining records fail below
        finally:
            self._sender.abandon(
                self._accumulator.incomplete, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the producer was closed")
            )
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
            await self._sender.close()
            await self._client.close()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close(timeout_ms=0)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(timeout_ms=None if kind is None else 0)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record; the future returns its metadata, or raises KafkaError.

        Waits only until the topic, or that partition, exists and, while `buffer_memory` is full, for room. Raises
        KafkaError: no such topic or partition, or no room (BufferFullError), after `max_block_ms`; a record beyond
        `max_request_size`.
        """
        if self._closed or self._task is None or self._task.done():
            raise RuntimeError("the producer is not running")
        info = self._client.cluster.topics.get(topic)
        if info is None or not info.partitions or (partition is not None and partition not in info.partitions):
            info = await self._topic(topic, partition)
        record = PendingRecord(key, value, headers, self._wall_clock_ms() if timestamp_ms is None else timestamp_ms)
        size = record.size_bytes
        if size > self._max_request_size:
            raise self._too_large(size)
        loop = asyncio.get_running_loop()
        chosen = partition
        if chosen is None:
            chosen = self._partitioner.partition(topic, key, len(info.partitions), info.available)
        future: asyncio.Future[RecordMetadata] = loop.create_future()
        target = TopicPartition(topic, chosen)
        if self._transactions is not None and not self._transactions.has(target):
            await self._transactions.add(target)
        if not self._accumulator.append(target, record, future, loop.time()):
            await self._when_possible(lambda: self._accumulator.append(target, record, future, loop.time()) or None)
        if key is None and partition is None:
            self._partitioner.appended(topic, chosen, size)
        return future

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> list[asyncio.Future[RecordMetadata]]:
        """Queue records that differ in key and value only. This takes about 4 % of the time of single calls of `send`.

        Each future represents the records of one batch: it returns the metadata of the first, or raises KafkaError if
        one of them was not delivered. Waits and raises as `send` does; ValueError unless there is a key for each value.
        """
        if self._closed or self._task is None or self._task.done():
            raise RuntimeError("the producer is not running")
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys for {len(values)} values")
        info = await self._topic(topic, partition)
        timestamp = self._wall_clock_ms() if timestamp_ms is None else timestamp_ms
        whole = RecordRun(None if keys is None else list(keys), list(values), encode_headers(headers), timestamp)
        largest = sum(max(map(len, filter(None, part)), default=0) for part in (whole.keys or (), whole.values))
        if (size := largest + len(whole.headers) + RECORD_OVERHEAD) > self._max_request_size:
            raise self._too_large(size)
        futures: list[asyncio.Future[RecordMetadata]] = []
        is_spread = partition is None and keys is not None
        for chosen, run in self._by_partition(topic, whole, info) if is_spread else ((partition, whole),):
            futures += await self._append_run(topic, chosen, run, info)
        return futures

    async def _append_run(
        self, topic: str, partition: int | None, run: RecordRun, info: TopicInfo
    ) -> list[asyncio.Future[RecordMetadata]]:
        """Add the run to one partition, or without a partition to the present one for records without keys."""
        loop = asyncio.get_running_loop()
        futures = []
        first = 0
        while first < len(run.values):
            chosen = partition
            if chosen is None:
                chosen = self._partitioner.partition(topic, None, len(info.partitions), info.available)
            target = TopicPartition(topic, chosen)
            if self._transactions is not None and not self._transactions.has(target):
                await self._transactions.add(target)
            future: asyncio.Future[RecordMetadata] = loop.create_future()
            append = partial(self._accumulator.append_run, target, run, first, future, clock=loop.time)
            appended = append()
            if appended is None:
                appended = await self._when_possible(append)
            first += appended.records
            futures.append(future)
            if partition is None:
                self._partitioner.appended(topic, chosen, appended.size_bytes)
        return futures

    def _by_partition(self, topic: str, run: RecordRun, info: TopicInfo) -> Iterator[tuple[int | None, RecordRun]]:
        """Group the records by the partition of their keys, in order; None for records without a key."""
        spread: dict[int | None, tuple[list[bytes | None], list[bytes | None]]] = {}
        choose, count = self._partitioner.partition, len(info.partitions)
        for key, value in zip(run.keys or (), run.values, strict=True):
            chosen = None if key is None else choose(topic, key, count, info.available)
            keys, values = spread.setdefault(chosen, ([], []))
            keys.append(key)
            values.append(value)
        for chosen, (keys, values) in spread.items():
            yield chosen, run._replace(keys=keys, values=values)

    async def _topic(self, topic: str, partition: int | None) -> TopicInfo:
        """Return the topic once it has partitions, including this one. Raises KafkaError after that time."""
        self._client.watch_topics([topic])
        return await self._client.topic(topic, self._max_block_ms, partition=partition)

    def _used_topics(self) -> set[str]:
        """Return the topics of recent sends: Java's producer also removes others."""
        return self._accumulator.topics_used(asyncio.get_running_loop().time() - self._client.metadata_max_idle)

    def _too_large(self, size: int) -> KafkaError:
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record of {size} bytes is larger than max_request_size, {self._max_request_size}",
        )

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Call `send`, and wait until the record is acknowledged. Raises KafkaError."""
        future = await self.send(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        return await future

    def transaction(self) -> ProducerTransaction:
        """Return a transaction: `async with producer.transaction():` commits at its end, or aborts after an error in
        the block.

        If records were not delivered it is aborted, and the first error is raised. Raises RuntimeError for a producer
        without a transactional id.
        """
        if self._transactions is None:
            raise RuntimeError("the producer has no transactional_id")
        return ProducerTransaction(self._transactions, self.flush)

    async def flush(self) -> None:
        """Wait until all records sent so far are acknowledged or have failed; batches do not linger during that
        time.
        """
        self._accumulator.flushing += 1
        try:
            self._wake()
            await self._accumulator.drained(asyncio.get_running_loop().time())
        finally:
            self._accumulator.flushing -= 1

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's partitions. Raises KafkaError if it does not exist and is not created in
        `max_block_ms`.
        """
        return sorted((await self._topic(topic, None)).partitions)

    async def _when_possible(self, append: Callable[[], R | None]) -> R:
        """Retry whenever memory is released. Raises BufferFullError after `max_block_ms`."""
        loop = asyncio.get_running_loop()
        accumulator = self._accumulator
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                while True:
                    waiter = loop.create_future()
                    accumulator.waiters.append(waiter)
                    self._wake()
                    await waiter
                    if (appended := append()) is not None:
                        break
        except TimeoutError:
            raise BufferFullError(
                f"buffer_memory full: {accumulator.buffer_memory} bytes of records are unacknowledged after "
                f"{self._max_block_ms} ms"
            ) from None
        finally:
            accumulator.pass_on()  # a caller that is cancelled after its wake-up passes its turn on
        return appended

    def _wake(self) -> None:
        self._sender.wake()

    def _sender_ended(self, task: asyncio.Task[None]) -> None:
        """Raise the error that ended the sender before `close`, a defect, to all waiting callers."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("the producer has failed", exc_info=error)
            reason = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer has failed: {error!r}")
            self._sender.abandon(self._accumulator.incomplete, reason)


def _codec(name: str) -> Compression:
    if name not in CODEC_BY_CONFIG_NAME:
        raise ValueError(f"compression: invalid value {name!r}. Expected one of {', '.join(CODEC_BY_CONFIG_NAME)}")
    return CODEC_BY_CONFIG_NAME[name]


def _acks(acks: Acks) -> int:
    if acks not in _ACKS:
        raise ValueError(f"acks: invalid value {acks!r}. Expected all, -1, 0 or 1")
    return _ACKS[acks]


def _idempotent(wanted: bool | None, acks: int, max_in_flight: int) -> bool | None:
    """Return the requested setting, if the other settings permit it; None leaves the choice to the brokers' support."""
    if acks == -1 and 1 <= max_in_flight <= MAX_UNACKED:
        return wanted
    if wanted:
        raise ValueError(f"idempotence requires acks=all and max_in_flight of 1 to {MAX_UNACKED}")
    return False
