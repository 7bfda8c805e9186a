"""The consumer: assigned partitions or a subscription of a group; positions, seeks, and records."""

from __future__ import annotations

import asyncio
import re
import sys
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
        raise ValueError(f"{name}: invalid value {value!r}. Expected one of {', '.join(table)}")
    return table[value]


class Consumer:
    """An asyncio consumer. Settings have the names and defaults of Kafka's Java consumer, with `_` instead of `.`.

    async with Consumer("localhost:9092", group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        async for record in consumer:
            print(record.partition, record.offset, record.value)

    With `assign` instead of `subscribe` it reads exactly these partitions; a `group_id` is then required for commits
    only. `GroupSettings` has the settings of a group.
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
        self._unprocessed_from: dict[TopicPartition, int] = {}
        """The first offset that the last read returned, or the offset committed since, if that is larger."""
        self._group = self._group_of(group_id, client_rack, group_options)

    def _group_of(self, group_id: str | None, rack: str, options: GroupOptions) -> ConsumerCoordinator | None:
        if group_id is None:
            if options:
                raise ValueError(f"{', '.join(options)}: requires a group_id")
            return None
        settings = GroupSettings(group_id, rack=rack, **options)
        kind = ConsumerCoordinator if settings.group_protocol == "classic" else AssignedGroup
        group = kind(self._client, self._assignment, self._fetcher, settings, timeout_ms=self._timeout_ms)
        # A single attempt: the fetcher may request other partitions the next time.
        self._fetcher.committed = partial(group.committed, timeout_ms=None)
        return group

    async def start(self) -> Self:
        """Connect to the cluster. Raises BrokerUnreachableError."""
        self._client.keep_topics(self._needed_topics)
        await self._client.start()
        if self._group is not None:
            self._group.start()
        self._task = asyncio.get_running_loop().create_task(self._fetcher.run())
        self._task.add_done_callback(lambda task: self._fetcher.data_ready.set())
        return self

    async def close(self) -> None:
        """Commit (with `enable_auto_commit`), leave the group, close the connections. Raises exceptions of listeners.

        After an error or a cancellation, the records that the last read returned count as not processed: they are not
        committed, and the next member of the group reads them again. That holds at the end of an `async with` block and
        for `close()` in a `finally` block.
        """
        # An exception that propagates through the caller's `finally` is the one being handled at this point.
        if sys.exc_info()[1] is not None:
            self._rewind_unprocessed()
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
        if error is not None:
            self._rewind_unprocessed()
        await self.close()

    def _rewind_unprocessed(self) -> None:
        """Move the positions back before the records that were returned last and not committed."""
        for partition, offset in self._unprocessed_from.items():
            state = self._assignment.states.get(partition)
            if state is not None and state.position is not None and offset < state.position:
                state.seek(offset)
        self._unprocessed_from = {}

    # Assignment and positions

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; partitions that were assigned before keep their positions.

        New partitions begin at the committed offset of the group, if there is one. Raises RuntimeError after
        `subscribe`.
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
        """Share these topics, or all topics whose whole name matches the pattern, with the other members of the group.

        The first read joins the group, and the next reads receive partitions. A second call replaces the first. Raises
        RuntimeError after `assign`, KafkaError without a `group_id`.
        """
        if not self._is_subscribed and self._assignment.states:
            raise RuntimeError("partitions are assigned manually; call assign([]) before subscribe")
        subscription = Subscription(
            name_list(topics, "topics"), re.compile(pattern) if pattern is not None else None, listener
        )
        if bool(subscription.topics) == (pattern is not None):
            raise ValueError("subscribe requires topics or a pattern")
        self._member().subscribe(subscription)

    async def unsubscribe(self) -> None:
        """Give up all partitions, including manually assigned ones, and leave the group."""
        if self._is_subscribed:
            await self._member().unsubscribe()
        else:
            self.assign(())

    def group_metadata(self) -> GroupMetadata:
        """Return the identity of this member, for `ProducerTransaction.send_offsets` before the next read.

        Raises ValueError without a group.
        """
        if self._group is None:
            raise ValueError("the consumer has no group_id")
        return self._group.metadata

    @property
    def subscription(self) -> frozenset[str]:
        """Return the topics of the subscription; for a pattern, the matching topics."""
        if self._group is None:
            return frozenset()
        return self._group.subscription.topics

    @property
    def assignment(self) -> set[TopicPartition]:
        return set(self._assignment.states)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Continue at this offset. With the `leader_epoch` of the record before it a truncation is detected
        (KIP-320).
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        self._assignment[partition].seek(offset, leader_epoch)
        self._unprocessed_from.pop(partition, None)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start offset, by default in all assigned partitions. Takes effect with the next read."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the high watermark, or with read_committed at the last stable offset."""
        self._reset(partitions, LATEST)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record, with a lookup if necessary. Raises KafkaError."""
        state = self._assignment[partition]
        async with asyncio.timeout(self._timeout_ms / 1000):
            while True:
                self._fetcher.data_ready.clear()
                if state.position is not None:
                    return state.position
                raise_error_of(state, self._fetcher)
                await self._changed()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`; their positions are kept."""
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
        """Return the high watermark in the newest fetch response, None before the first."""
        high_watermark = self._assignment[partition].high_watermark
        return high_watermark if high_watermark >= 0 else None

    # Committed offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Commit these offsets (of the records to be read next), or the positions of all assigned partitions.

        Raises CommitFailedError if the group has continued without this member, RebalanceInProgressError during a
        rebalance, FencedInstanceIdError, KafkaError.
        """
        if offsets is None:
            wanted = positions(self._assignment)
        else:
            wanted = {tp: OffsetAndMetadata(at) if isinstance(at, int) else at for tp, at in offsets.items()}
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        await self._member().commit(wanted, timeout_ms=timeout_ms)
        for partition in wanted.keys() & self._unprocessed_from.keys():
            self._unprocessed_from[partition] = max(self._unprocessed_from[partition], wanted[partition].offset)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, None for a partition without one. Raises KafkaError."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        return await self._member().committed(partitions, timeout_ms=timeout_ms)

    # Cluster metadata

    async def partitions_for(self, topic: str, *, timeout_ms: int | None = None) -> list[int]:
        """Return the topic's partitions. Raises KafkaError if the topic does not exist by then."""
        info = await self._client.topic(topic, self._timeout_ms if timeout_ms is None else timeout_ms)
        return sorted(info.partitions)

    async def list_topics(self) -> list[str]:
        """Return all topics except internal ones. Raises KafkaError."""
        response = await self._client.ask_metadata(None)
        return sorted(topic.name for topic in response.topics if topic.name is not None and not topic.is_internal)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition. Raises KafkaError."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition, or with read_committed its last stable offset. Raises
        KafkaError.
        """
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each timestamp (ms), None if there is none. Raises KafkaError."""
        found = await self._lookup.find(timestamps, timeout_ms=self._timeout_ms)
        return {tp: offset if offset.offset >= 0 else None for tp, offset in found.items()}

    # Records

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records by partition, at least one unless `timeout_ms` passes first.

        This call takes part in the group: records returned before count as processed. Raises NoOffsetError,
        LogTruncatedError, FencedInstanceIdError, exceptions of a rebalance listener, and KafkaError for errors that no
        retry resolves (a CRC, authorization).
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        return await self._read(max_records or self._max_poll_records, deadline)

    async def getone(self) -> ConsumerRecord:
        """Return the next record of any partition, without a timeout. Raises as `getmany`."""
        for records in (await self._read(1, inf)).values():
            return records[0]
        raise AssertionError("unreachable: there is no deadline")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        return await self.getone()

    async def _read(self, max_records: int, deadline: float) -> dict[TopicPartition, list[ConsumerRecord]]:
        time, group = asyncio.get_running_loop().time, self._group
        self._unprocessed_from = {}  # the application has called again, so it has processed these records
        while True:
            if group is not None and group.needs_read(time()):
                await group.read()
            records = self._buffered.take(max_records)
            if records or deadline <= time():
                self._unprocessed_from = {tp: taken[0].offset for tp, taken in records.items()}
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
            self._unprocessed_from.pop(partition, None)
        self._fetcher.wake()

    def _needed_topics(self) -> set[str]:
        """Return the topics whose metadata is always required."""
        topics = {tp.topic for tp in self._assignment.states}
        return topics if self._group is None else topics | self._group.needed_topics

    @property
    def _is_subscribed(self) -> bool:
        return self._group is not None and bool(self._group.subscription)

    def _member(self) -> ConsumerCoordinator:
        if self._group is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "group_id required")
        return self._group

    async def _ends(self, partitions: Iterable[TopicPartition], end: int) -> dict[TopicPartition, int]:
        found = await self._lookup.find(dict.fromkeys(partitions, end), timeout_ms=self._timeout_ms)
        return {tp: offset.offset for tp, offset in found.items()}
