"""What is in a broker's topics and groups: put there and read by a test, past the network and past its faults.

On the loop's thread. Nothing here is a client: no quota, no right and no fault on purpose concerns it.
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
from ..server.runtime.turns import next_turn

if TYPE_CHECKING:
    from ..server.broker_state import BrokerState
    from ..server.replication.delayed_produce import AppendResult
    from ..server.replication.partition import FetchIsolation, Partition

Data: TypeAlias = bytes | str | None
"""Text is UTF-8; None is a tombstone's value, or no key."""
NewRecord: TypeAlias = Data | tuple[Data, Data] | tuple[Data, Data, Mapping[str, Data]]
"""A value, or key and value, or those with headers."""
NewRecords: TypeAlias = Iterable[NewRecord] | Mapping[str, Data] | Mapping[bytes, Data]

PRODUCE_VERSION = 13
TIMEOUT_MS = 30_000
BATCH_BYTES = 500_000
READ_BYTES = 1 << 20
LOOK_SECONDS = 0.005


class Contents:
    """Topics and groups of one broker. Loop-thread only."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    # -- records ---------------------------------------------------------------------------------------------------

    async def produce(
        self, topic: str, records: NewRecords, *, partition: int | None, timestamp_ms: int | None
    ) -> list[TopicPartition]:
        """Append records; returns the partition of each. Raises TypeError, KafkaError."""
        if isinstance(records, str | bytes):
            raise TypeError(f"{records!r} is one record; records come in a list: [{records!r}]")
        count_of = await self._partition_count(topic)
        if partition is not None and not 0 <= partition < count_of:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {count_of} partitions, and no partition {partition}"
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
            -1,
            TIMEOUT_MS,
            appended.set_result,
            produce_version=PRODUCE_VERSION,
            internal_topics_allowed=True,
        )
        (result,) = await appended
        if isinstance(result, KafkaError):
            raise result

    async def _partition_count(self, topic: str) -> int:
        """Of a topic, which is made as for a producer if there is none. Raises KafkaError."""
        state = self._state
        image = state.metadata.topic(topic)
        if image is None and state.config.auto_create_topics_enable:
            error = (await state.controller.auto_create([topic]))[topic]
            if error is not None:
                raise error
            image = state.metadata.topic(topic)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        return len(image.partitions)

    async def records(self, topic: str, partition: int | None) -> list[ConsumerRecord]:
        """All that a consumer may read, aborted transactions left out; partition by partition. Raises KafkaError."""
        found = []
        for one in self._partitions(topic, partition):
            found += await self._read(one)
        return found

    async def _read(self, partition: Partition) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        isolation: FetchIsolation = "transactions committed"
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
        """What this broker leads of a topic. Raises KafkaError."""
        image = self._state.metadata.topic(topic)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        indexes = range(len(image.partitions)) if partition is None else [partition]
        return [self._state.replica_manager.partition(topic, index) for index in indexes]

    async def delete_records(self, topic: str, partition: int | None, before: int | None) -> dict[TopicPartition, int]:
        """Raise where partitions begin, by default to their ends; where they begin then. Raises KafkaError."""
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
        """Whether there can be so many records; cheap, and sure only where it is false."""
        if self._state.metadata.topic(topic) is None:
            return False
        partitions = self._partitions(topic, partition)
        return sum(one.log.high_watermark - one.log.log_start_offset for one in partitions) >= wanted

    # -- groups ----------------------------------------------------------------------------------------------------

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The next offsets that a group has committed; empty if it has none. Raises KafkaError while it is loaded."""
        try:
            found = self._state.groups.find(group)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_COORDINATOR:
                return {}
            raise
        if found is None:
            return {}
        return {TopicPartition(*place): one.offset for place, one in sorted(found.offsets.committed.items())}

    def lag(self, group: str, topic: str | None) -> dict[TopicPartition, int]:
        """How many offsets a group has before it, in what it has committed or in all of a topic. Raises KafkaError."""
        committed = self.committed(group)
        places = committed.keys()
        if topic is not None:
            places = {one.topic_partition: 0 for one in self._partitions(topic, None)}.keys()
        lags = {}
        for place in sorted(places):
            partition = self._state.replica_manager.find(place.topic, place.partition)
            if partition is not None:
                log = partition.log
                at = max(committed.get(place, 0), log.log_start_offset)
                lags[place] = max(0, log.high_watermark - at)
        return lags


async def until(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds, looking every few milliseconds; whether it did in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not holds():
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


def _parts(record: object) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and headers. Raises TypeError."""
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
    raise TypeError(f"{data!r} is a {type(data).__name__}; bytes, str or None is wanted (json.dumps makes a str)")
