"""The consumer: of partitions it is given by hand or by its group; positions, seeking, and records as they come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import inf
from random import Random
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from .assignment import Assignment
from .buffered_records import BufferedRecords, raise_error_of
from .client import Client
from .connection import ConnectionOptions
from .fetched_records import ConsumerRecord
from .fetcher import Fetcher, FetchSettings
from .group.assigned_group import AssignedGroup
from .group.auto_commit import positions
from .group.consumer_coordinator import ConsumerCoordinator
from .group.group_metadata import GroupMetadata
from .group.listener import RebalanceListener
from .group.offset_requests import OffsetAndMetadata
from .group.settings import GroupOptions, GroupSettings
from .group.subscription import Subscription
from .host import new_random
from .name_list import name_list
from .offsets import OffsetAndTimestamp, OffsetLookup
from .security import PLAINTEXT, Security

T = TypeVar("T")
AutoOffsetReset = Literal["earliest", "latest", "none"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
_RESET_TO: dict[str, int | None] = {"earliest": EARLIEST, "latest": LATEST, "none": None}
_ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


def _chosen(name: str, value: str, table: Mapping[str, T]) -> T:
    if value not in table:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(table)}")
    return table[value]


class Consumer:
    """Reads partitions; settings have the names and defaults of Kafka's Java consumer.

    async with Consumer("localhost:9092", group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        async for record in consumer:
            print(record.partition, record.offset, record.value)

    With `assign` in place of `subscribe` it reads those partitions and shares them with nobody; then a `group_id` is
    needed only to commit. What a group may be set to is in `GroupSettings`.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        group_id: str | None = None,
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
        socket_connection_setup_timeout_ms: int | None = None,
        default_api_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        metadata_max_age_ms: int = 300_000,
        security: Security = PLAINTEXT,
        rng: Random | None = None,
        **group_options: Unpack[GroupOptions],
    ) -> None:
        level = _chosen("isolation_level", isolation_level, _ISOLATION_LEVELS)
        how = ConnectionOptions(client_id, request_timeout_ms, socket_connection_setup_timeout_ms, security=security)
        self._client = Client(
            bootstrap_servers,
            rng=rng or new_random(),
            options=how,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            allow_auto_topic_creation=allow_auto_create_topics,
        )
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
                reset_to=_chosen("auto_offset_reset", auto_offset_reset, _RESET_TO),
            ),
        )
        self._buffered = BufferedRecords(self._assignment, self._fetcher)
        self._max_poll_records = max_poll_records
        self._timeout_ms = default_api_timeout_ms
        self._task: asyncio.Task[None] | None = None
        self._group = self._group_of(group_id, client_rack, group_options)

    def _group_of(self, group_id: str | None, rack: str, options: GroupOptions) -> ConsumerCoordinator | None:
        if group_id is None:
            if options:
                raise ValueError(f"{', '.join(options)} need a group_id")
            return None
        settings = GroupSettings(group_id, rack=rack, **options)
        kind = ConsumerCoordinator if settings.group_protocol == "classic" else AssignedGroup
        group = kind(self._client, self._assignment, self._fetcher, settings, timeout_ms=self._timeout_ms)
        # One attempt: what the fetcher asks for the next time may be other partitions.
        self._fetcher.committed = partial(group.committed, timeout_ms=0)
        return group

    async def start(self) -> Self:
        """Reach the cluster. Raises BrokerUnreachableError."""
        self._client.keep_topics(self._needed_topics)
        await self._client.start()
        if self._group is not None:
            self._group.start()
        self._task = asyncio.get_running_loop().create_task(self._fetcher.run())
        self._task.add_done_callback(lambda task: self._fetcher.data_ready.set())
        return self

    async def close(self) -> None:
        """Commit (with `enable_auto_commit`), leave the group, close the connections. Raises what a listener raised."""
        try:
            if self._group is not None and self._task is not None:
                await self._group.close()
        finally:
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
        """Read these partitions and no others; those that were assigned before keep their positions.

        Others begin where the group has committed, if there is one. Raises RuntimeError after `subscribe`.
        """
        if self._is_subscribed:
            raise RuntimeError("the consumer is subscribed; its group assigns the partitions")
        partitions = list(partitions)
        self._assignment.assign(partitions, self._fetcher.reset_to, from_committed=self._group is not None)
        self._fetcher.wake()
        if self._group is not None:
            self._group.auto_commit.restart()

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share these topics, or all whose whole name matches the pattern, with the other members of the group.

        Reading makes a member: partitions come with the first reads. A second call replaces the first. Raises
        RuntimeError after `assign`, KafkaError without a `group_id`.
        """
        if not self._is_subscribed and self._assignment.states:
            raise RuntimeError("partitions are assigned by hand; assign none before subscribing")
        subscription = Subscription(
            name_list(topics, "topics"), re.compile(pattern) if pattern is not None else None, listener
        )
        if bool(subscription.topics) == (pattern is not None):
            raise ValueError("subscribe to topics or to a pattern")
        self._member().subscribe(subscription)

    async def unsubscribe(self) -> None:
        """Give up all partitions and leave the group; those of `assign`, too."""
        if self._is_subscribed:
            await self._member().unsubscribe()
        else:
            self.assign(())

    def group_metadata(self) -> GroupMetadata:
        """As whom this consumer has its partitions, for `ProducerTransaction.send_offsets` before the next read.

        Raises ValueError without a group.
        """
        if self._group is None:
            raise ValueError("the consumer has no group_id")
        return self._group.metadata

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern, those that match."""
        if self._group is None:
            return frozenset()
        return self._group.subscription.topics

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
                raise_error_of(state, self._fetcher)
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

    # What the group has consumed

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Store these offsets (of the records to be read next), or the positions of all assigned partitions.

        Raises CommitFailedError if the group went on without this member, RebalanceInProgressError if it is about to,
        FencedInstanceIdError, KafkaError.
        """
        if offsets is None:
            wanted = positions(self._assignment)
        else:
            wanted = {tp: OffsetAndMetadata(at) if isinstance(at, int) else at for tp, at in offsets.items()}
        await self._member().commit(wanted, timeout_ms=timeout_ms or self._timeout_ms)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored, None where it has not. Raises KafkaError."""
        return await self._member().committed(partitions, timeout_ms=timeout_ms or self._timeout_ms)

    # What the cluster knows

    async def partitions_for(self, topic: str, *, timeout_ms: int | None = None) -> list[int]:
        """The topic's partitions. Raises KafkaError if it does not exist after that time."""
        info = await self._client.topic(topic, self._timeout_ms if timeout_ms is None else timeout_ms)
        return sorted(info.partitions)

    async def list_topics(self) -> list[str]:
        """The topics that there are now, but for Kafka's own. Raises KafkaError."""
        response = await self._client.ask_metadata(None)
        return sorted(topic.name for topic in response.topics if topic.name is not None and not topic.is_internal)

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

        A member takes part in its group here: what was returned before counts as done. Raises NoOffsetError,
        LogTruncatedError, FencedInstanceIdError, what a rebalance listener raised, and KafkaError for what no retry
        mends (a CRC, authorization).
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        return await self._read(max_records or self._max_poll_records, deadline)

    async def getone(self) -> ConsumerRecord:
        """The next record of any partition, however long it takes. Errors as `getmany`."""
        for records in (await self._read(1, inf)).values():
            return records[0]
        raise AssertionError("unreachable: there is no deadline")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        return await self.getone()

    async def _read(self, max_records: int, deadline: float) -> dict[TopicPartition, list[ConsumerRecord]]:
        time, group = asyncio.get_running_loop().time, self._group
        while True:
            if group is not None and group.needs_read(time()):
                await group.read()
            records = self._buffered.take(max_records)
            if records or deadline <= time():
                return records
            if group is None:
                await self._changed(deadline)
            elif not group.needs_read(time()):
                with group.heartbeats.waiting():
                    await self._changed(min(deadline, group.next_read_at))

    async def _changed(self, deadline: float = inf) -> None:
        if self._task is not None and not self._task.done():
            await self._fetcher.data_ready.wait(deadline)
        if self._task is None or self._task.cancelled():
            raise RuntimeError("the consumer is not running")
        if self._task.done():
            self._task.result()

    def _reset(self, partitions: Sequence[TopicPartition], reset_to: int) -> None:
        for partition in partitions or list(self._assignment.states):
            self._assignment[partition].reset(reset_to)
        self._fetcher.wake()

    def _needed_topics(self) -> set[str]:
        """Those that metadata is to be had of at any time."""
        topics = {tp.topic for tp in self._assignment.states}
        return topics if self._group is None else topics | self._group.needed_topics

    @property
    def _is_subscribed(self) -> bool:
        return self._group is not None and bool(self._group.subscription)

    def _member(self) -> ConsumerCoordinator:
        if self._group is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group_id is needed for this")
        return self._group

    async def _ends(self, partitions: Iterable[TopicPartition], end: int) -> dict[TopicPartition, int]:
        found = await self._lookup.find(dict.fromkeys(partitions, end), timeout_ms=self._timeout_ms)
        return {tp: offset.offset for tp, offset in found.items()}
