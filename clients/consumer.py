"""The consumer of assigned partitions: positions, seeking, and records as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Literal, Self

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from .assignment import Assignment, PartitionState
from .client import Client
from .connection import ConnectionOptions
from .fetched_records import ConsumerRecord
from .fetcher import Fetcher, FetchSettings
from .host import new_random
from .offsets import OffsetAndTimestamp, OffsetLookup

AutoOffsetReset = Literal["earliest", "latest", "none"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
_RESET_TO: dict[str, int | None] = {"earliest": EARLIEST, "latest": LATEST, "none": None}
_ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


class Consumer:
    """Reads assigned partitions; settings have the names and defaults of Kafka's Java consumer.

    async with Consumer("localhost:9092", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("flights", 0)])
        async for record in consumer:
            print(record.offset, record.value)
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas-consumer",
        client_rack: str = "",
        auto_offset_reset: AutoOffsetReset = "latest",
        isolation_level: IsolationLevel = "read_uncommitted",
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 52_428_800,
        fetch_max_wait_ms: int = 500,
        max_partition_fetch_bytes: int = 1_048_576,
        max_poll_records: int = 500,
        check_crcs: bool = True,
        allow_auto_create_topics: bool = True,
        request_timeout_ms: int = 30_000,
        default_api_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        metadata_max_age_ms: int = 300_000,
        rng: Random | None = None,
    ) -> None:
        if auto_offset_reset not in _RESET_TO:
            raise ValueError(f"auto_offset_reset is {auto_offset_reset!r}, not one of {', '.join(_RESET_TO)}")
        if isolation_level not in _ISOLATION_LEVELS:
            raise ValueError(f"isolation_level is {isolation_level!r}, not one of {', '.join(_ISOLATION_LEVELS)}")
        self._client = Client(
            bootstrap_servers,
            rng=rng or new_random(),
            options=ConnectionOptions(client_id=client_id, request_timeout_ms=request_timeout_ms),
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            allow_auto_topic_creation=allow_auto_create_topics,
        )
        self._reset_to = _RESET_TO[auto_offset_reset]
        level = _ISOLATION_LEVELS[isolation_level]
        self._lookup = OffsetLookup(self._client, isolation_level=level)
        self._assignment = Assignment()
        self._fetcher = Fetcher(
            self._client,
            self._assignment,
            self._lookup,
            FetchSettings(
                min_bytes=fetch_min_bytes,
                max_bytes=fetch_max_bytes,
                max_partition_bytes=max_partition_fetch_bytes,
                max_wait_ms=fetch_max_wait_ms,
                isolation_level=level,
                check_crcs=check_crcs,
                rack_id=client_rack,
                request_timeout_ms=request_timeout_ms,
                reset_to=self._reset_to,
            ),
        )
        self._max_poll_records = max_poll_records
        self._timeout_ms = default_api_timeout_ms
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Self:
        """Reach the cluster. Raises BrokerUnreachableError."""
        await self._client.start()
        self._task = asyncio.get_running_loop().create_task(self._fetcher.run())
        self._task.add_done_callback(lambda task: self._fetcher.data_ready.set())
        return self

    async def close(self) -> None:
        """Stop fetching and close the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._fetcher.close()
        await self._client.close()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What is read, and from where

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; those that were assigned before keep their positions."""
        partitions = list(partitions)
        self._assignment.assign(partitions, self._reset_to)
        self._client.watch_topics({tp.topic for tp in partitions})
        self._fetcher.wake()

    @property
    def assignment(self) -> set[TopicPartition]:
        return set(self._assignment.states)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Go on at this offset. `leader_epoch` of the record before it lets truncation be noticed (KIP-320)."""
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        self._assignment[partition].seek(offset, leader_epoch)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start; without arguments in all assigned partitions. Takes effect with the next read."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the high watermark, or with read_committed at the last stable offset."""
        self._reset(partitions, LATEST)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record, looked up if need be. Raises KafkaError."""
        state = self._assignment[partition]
        async with asyncio.timeout(self._timeout_ms / 1000):
            while True:
                self._fetcher.data_ready.clear()
                if state.position is not None:
                    return state.position
                self._raise_error_of(state)
                await self._changed()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these partitions until `resume`; their positions stay."""
        for partition in partitions:
            self._assignment[partition].is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._assignment[partition].is_paused = False
        self._fetcher.wake()
        self._fetcher.data_ready.set()

    @property
    def paused(self) -> set[TopicPartition]:
        return {tp for tp, state in self._assignment.states.items() if state.is_paused}

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The high watermark in the newest fetch response, None before the first."""
        high_watermark = self._assignment[partition].high_watermark
        return high_watermark if high_watermark >= 0 else None

    # What the cluster knows

    async def partitions_for(self, topic: str, *, timeout_ms: int | None = None) -> list[int]:
        """The topic's partitions. Raises KafkaError if it does not exist after that time."""
        info = await self._client.topic(topic, self._timeout_ms if timeout_ms is None else timeout_ms)
        return sorted(info.partitions)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition. Raises KafkaError."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition, or with read_committed its last stable offset. Raises KafkaError."""
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp (ms), None if there is none that late. Raises KafkaError."""
        found = await self._lookup.find(timestamps, timeout_ms=self._timeout_ms)
        return {tp: offset if offset.offset >= 0 else None for tp, offset in found.items()}

    # Records

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition, at least one unless `timeout_ms` passes first.

        Raises NoOffsetError, LogTruncatedError, and KafkaError for what no retry mends (a CRC, authorization).
        """
        wanted = max_records or self._max_poll_records
        records = self._take(wanted)
        if records or timeout_ms <= 0:
            return records
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not records:
                    await self._changed()
                    records = self._take(wanted)
        except TimeoutError:
            return {}
        return records

    async def getone(self) -> ConsumerRecord:
        """The next record of any partition, however long it takes. Errors as `getmany`."""
        while True:
            for records in self._take(1).values():
                return records[0]
            await self._changed()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        return await self.getone()

    def _take(self, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What is buffered, partition by partition; the position moves behind it."""
        self._fetcher.data_ready.clear()
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        for state in list(self._assignment.states.values()):
            if state.error is not None:
                if taken:
                    self._fetcher.data_ready.set()
                    break
                self._raise_error_of(state)
            if state.buffered is None or state.is_paused:
                continue
            records = self._take_from(state, max_records)
            if records:
                taken[state.partition] = records
                max_records -= len(records)
                if max_records <= 0:
                    self._fetcher.data_ready.set()
                    break
        return taken

    def _take_from(self, state: PartitionState, max_records: int) -> list[ConsumerRecord]:
        fetched = state.buffered
        assert fetched is not None
        try:
            records = fetched.take(max_records)
        except KafkaError as error:
            state.fail(error)
            self._fetcher.data_ready.set()
            return []
        state.position = fetched.next_offset
        if fetched.leader_epoch >= 0:
            state.position_epoch = fetched.leader_epoch
        if len(records) < max_records:
            state.buffered = None
            self._assignment.move_to_end(state.partition)
            self._fetcher.wake()
        return records

    async def _changed(self) -> None:
        if self._task is not None and not self._task.done():
            await self._fetcher.data_ready.wait()
        if self._task is None or self._task.cancelled():
            raise RuntimeError("the consumer is not running")
        if self._task.done():
            self._task.result()

    def _reset(self, partitions: Sequence[TopicPartition], reset_to: int) -> None:
        for partition in partitions or list(self._assignment.states):
            self._assignment[partition].reset(reset_to)
        self._fetcher.wake()

    @staticmethod
    def _raise_error_of(state: PartitionState) -> None:
        """Tell the application once; what is retried by a later read need not be sought again."""
        error = state.error
        if error is not None:
            if state.position is not None and error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                state.error = None
            raise error

    async def _ends(self, partitions: Iterable[TopicPartition], end: int) -> dict[TopicPartition, int]:
        found = await self._lookup.find(dict.fromkeys(partitions, end), timeout_ms=self._timeout_ms)
        return {tp: offset.offset for tp, offset in found.items()}
