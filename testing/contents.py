"""Records and groups of a broker, written and read by a test without the network and its faults.

Runs on the loop's thread, and is not a client: quotas, ACLs and injected faults do not apply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from ..clients.fetched_records import ConsumerRecord, FetchedRecords
from ..clients.partitioner import partition_of_key
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.fetch import AbortedTransaction
from ..protocol.record_batch_builder import RecordBatchBuilder
from ..protocol.topic_partition import TopicPartition
from ..server.replication.append_request import AppendRequest
from ..server.runtime.loop_sharing import next_turn
from ..storage.log_validator import CLIENT_RULES
from ..storage.log_values import FetchIsolation

if TYPE_CHECKING:
    from ..server.broker_state import BrokerState
    from ..server.replication.append_request import AppendResult
    from ..server.replication.partition import Partition

Data: TypeAlias = bytes | str | None
"""Text is UTF-8; None is a tombstone's value, or no key."""
NewRecord: TypeAlias = Data | tuple[Data, Data] | tuple[Data, Data, Mapping[str, Data]]
"""A value, or key and value, or both with headers."""
NewRecords: TypeAlias = Iterable[NewRecord] | Mapping[str, Data] | Mapping[bytes, Data]

TIMEOUT_MS = 30_000
BATCH_BYTES = 500_000
READ_BYTES = 1 << 20
LOOK_SECONDS = 0.005


class Contents:
    """Topics and groups of one broker. Runs on the broker's event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    # -- records ---------------------------------------------------------------------------------------------------

    async def produce(
        self, topic: str, records: NewRecords, *, partition: int | None, timestamp_ms: int | None
    ) -> list[TopicPartition]:
        """Append records; return the partition of each. Raises TypeError, KafkaError."""
        if isinstance(records, str | bytes):
            raise TypeError(f"{records!r} is a single record; a list of records is [{records!r}]")
        count_of = await self._partition_count(topic)
        if partition is not None and not 0 <= partition < count_of:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic} has {count_of} partitions; partition {partition} does not exist",
            )
        next_keyless = count()
        builders: dict[int, RecordBatchBuilder] = {}
        places = []
        for record in records.items() if isinstance(records, Mapping) else records:
            key, value, headers = _parts(record)
            index = partition
            if index is None:
                index = next(next_keyless) % count_of if key is None else partition_of_key(key, count_of)
            at = self._state.ports.now_ms() if timestamp_ms is None else timestamp_ms
            builder = builders.setdefault(index, RecordBatchBuilder(max_size=BATCH_BYTES))
            if not builder.append(key, value, headers, at):
                await self._append(topic, index, builder)
                builder = builders[index] = RecordBatchBuilder(max_size=BATCH_BYTES)
                builder.append(key, value, headers, at)
            places.append(TopicPartition(topic, index))
        for index, builder in builders.items():
            await self._append(topic, index, builder)
        return places

    async def _append(self, topic: str, index: int, builder: RecordBatchBuilder) -> None:
        appended: asyncio.Future[list[AppendResult]] = asyncio.get_running_loop().create_future()
        self._state.replica_manager.append_records(
            [(topic, index, memoryview(bytearray(builder.build())))],
            AppendRequest(-1, TIMEOUT_MS, appended.set_result, CLIENT_RULES, internal_topics_allowed=True),
        )
        (result,) = await appended
        if isinstance(result, KafkaError):
            raise result

    async def _partition_count(self, topic: str) -> int:
        """Return the partitions of a topic, which is created as for a producer if it is missing. Raises KafkaError."""
        state = self._state
        image = state.metadata.topic(topic)
        if image is None and state.config.auto_create_topics_enable:
            error = (await state.controller.auto_create([topic]))[topic]
            if error is not None:
                raise error
            image = state.metadata.topic(topic)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")
        return len(image.partitions)

    async def records(self, topic: str, partition: int | None) -> list[ConsumerRecord]:
        """Return all records for a read_committed consumer, partition by partition. Raises KafkaError."""
        found = []
        for one in self._partitions(topic, partition):
            found += await self._read(one)
        return found

    async def _read(self, partition: Partition) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        isolation = FetchIsolation.TXN_COMMITTED
        offset = partition.log.log_start_offset
        while offset < partition.read_bound(isolation):
            read = partition.read(offset, READ_BYTES, min_one_batch=True, isolation=isolation)
            aborted = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in read.aborted_transactions or ()
            ]
            fetched = FetchedRecords(
                partition.topic_partition, memoryview(read.data), offset, aborted=aborted, check_crcs=False
            )
            found += fetched.take(1 << 31)
            if fetched.next_offset <= offset:
                break
            offset = fetched.next_offset
            await next_turn()
        return found

    def _partitions(self, topic: str, partition: int | None) -> list[Partition]:
        """Return the partitions of a topic whose leader is this broker. Raises KafkaError."""
        image = self._state.metadata.topic(topic)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")
        indexes = range(len(image.partitions)) if partition is None else [partition]
        return [self._state.replica_manager.get_leader_partition(topic, index) for index in indexes]

    async def delete_records(self, topic: str, partition: int | None, before: int | None) -> dict[TopicPartition, int]:
        """Increase log start offsets, by default to the ends; return them. Raises KafkaError."""
        wanted = [
            (*one.topic_partition, -1 if before is None else before) for one in self._partitions(topic, partition)
        ]
        starts: dict[TopicPartition, int] = {}
        outcomes = await self._state.replica_manager.delete_records(wanted, TIMEOUT_MS)
        for (name, index, _), outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                raise outcome
            starts[TopicPartition(name, index)] = outcome
        return starts

    def may_have(self, topic: str, partition: int | None, wanted: int) -> bool:
        """Return whether there may be this number of records; cheap, and reliable only if it is false."""
        if self._state.metadata.topic(topic) is None:
            return False
        partitions = self._partitions(topic, partition)
        return sum(one.log.high_watermark - one.log.log_start_offset for one in partitions) >= wanted

    # -- groups ----------------------------------------------------------------------------------------------------

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; empty if it has none. Raises KafkaError while it is loaded."""
        try:
            found = self._state.group_coordinator.group_manager.find_group(group)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_COORDINATOR:
                return {}
            raise
        if found is None:
            return {}
        return {TopicPartition(*place): one.offset for place, one in sorted(found.offsets.committed.items())}

    def lag(self, group: str, topic: str | None) -> dict[TopicPartition, int]:
        """Return the lag of a group, in its committed partitions or in all of a topic. Raises KafkaError."""
        committed = self.committed(group)
        places = committed.keys()
        if topic is not None:
            places = {one.topic_partition: 0 for one in self._partitions(topic, None)}.keys()
        lags = {}
        for place in sorted(places):
            partition = self._state.replica_manager.get_partition(place.topic, place.partition)
            if partition is not None:
                log = partition.log
                at = max(committed.get(place, 0), log.log_start_offset)
                lags[place] = max(0, log.high_watermark - at)
        return lags


async def until(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition is true, polling every few milliseconds; return whether it became true in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not holds():
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


def _parts(record: object) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Return key, value and headers. Raises TypeError."""
    if not isinstance(record, tuple):
        return None, _bytes(record), []
    if not 2 <= len(record) <= 3:
        raise TypeError(f"{record!r}: a record is a value, (key, value) or (key, value, headers)")
    headers = record[2] if len(record) == 3 else {}
    return _bytes(record[0]), _bytes(record[1]), [(name, _bytes(value)) for name, value in dict(headers).items()]


def _bytes(data: object) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"{data!r} is a {type(data).__name__}; expected bytes, str or None (json.dumps returns a str)")
