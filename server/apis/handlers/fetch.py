"""Fetch (key 1): records from the offsets asked for, now or when enough of them are there.

Version 3 (KIP-74) bounds the whole answer: from 3 on its first non-empty partition holds at least one whole batch, and
a later one whose first batch does not fit is empty, where older readers get a part of it. 4 adds isolation levels; 7
incremental sessions (KIP-227); 9 leader epoch fencing (KIP-320); 12 detects divergence (KIP-595); 13 names topics
by id (KIP-516); 16 tells who leads if this broker does not (KIP-951). Readers of versions 0-3 get records converted to
the format they know.
"""

from __future__ import annotations

from typing import cast
from uuid import UUID

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ....protocol.schema import ZERO_UUID, Buffer
from ....storage.errors import LogDirFailedError
from ....storage.filesystem import Sendable
from ....storage.log_values import FetchData
from ....storage.record_conversion import down_convert
from ...replication.delayed_fetch import AwaitedRead, DelayedFetch
from ...replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchItem,
    FetchSession,
    PartitionKey,
    requested_items,
)
from ...replication.partition import Partition
from ..leader_hints import LeaderHints
from ..request_context import RequestContext

MAX_WAIT_MS = 300_000
"""No fetch is parked longer than this, whatever the client asks for."""
ZSTD = "zstd"
SINCE_WHOLE_BATCHES = 3
SINCE_CURRENT_FORMAT = 4
SINCE_ZSTD = 10
SINCE_LEADER_HINTS = 16
HINTED_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(ctx: RequestContext, request: FetchRequest) -> FetchResponse | None:
    """Answer now if anything calls for it, else park the request."""
    fetch = _Fetch(ctx, request)
    if ctx.broker.ports.fault("fetch-session-lost"):
        ctx.broker.fetch_sessions.close(request.session_id)
    try:
        fetch.open_session()
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if fetch.read():
        return fetch.answer()
    fetch.park()
    return None


class _Fetch:
    """One fetch request while it is being served."""

    __slots__ = (
        "_by_id",
        "_bytes",
        "_ctx",
        "_hints",
        "_items",
        "_max_bytes",
        "_min_bytes",
        "_reads",
        "_request",
        "_results",
        "_session",
        "_version",
    )

    def __init__(self, ctx: RequestContext, request: FetchRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._version = ctx.api_version
        self._by_id = ctx.api_version >= 13
        # Before version 3 a request has no limit of its own, but the broker has. More than may be answered is not
        # worth waiting for.
        self._max_bytes = min(request.max_bytes, ctx.broker.config.fetch_max_bytes)
        if ctx.charge is not None:
            self._max_bytes = min(self._max_bytes, ctx.charge.most_fetch_bytes())
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._hints: LeaderHints | None = None
        self._session: FetchSession | None = None
        self._bytes = 0
        """Of the records that were read."""
        self._items: dict[PartitionKey, FetchItem] = {}
        self._reads: list[AwaitedRead] = []
        self._results: list[tuple[PartitionKey, FetchItem, PartitionData]] = []

    def open_session(self) -> None:
        """Find out which partitions are to be read. Raises KafkaError for a session the broker does not know."""
        request, sessions = self._request, self._ctx.broker.fetch_sessions
        epoch = request.session_epoch
        if self._version < 7 or epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._items = requested_items(request, uses_topic_ids=self._by_id)
            if self._version >= 7:
                sessions.close(request.session_id)
            if self._version >= 7 and epoch == INITIAL_EPOCH:
                now = self._ctx.broker.replica_manager.loop_time()
                self._session = sessions.open(self._items, uses_topic_ids=self._by_id, now=now)
        else:
            now = self._ctx.broker.replica_manager.loop_time()
            self._session = sessions.resume(request, uses_topic_ids=self._by_id, now=now)
            if self._session is not None:
                self._items = self._session.items

    def read(self) -> bool:
        """Read every partition in order within the limits; whether that calls for an answer at once."""
        request = self._request
        budget = self._max_bytes
        whole_batch_due = self._version >= SINCE_WHOLE_BATCHES
        self._reads, self._results = [], []
        total = 0
        decided = request.max_wait_ms <= 0 or not self._items
        for key, item in self._items.items():
            try:
                data = self._read_one(item, budget, whole_batch_due)
                decided = decided or data.diverging_epoch.end_offset >= 0
            except KafkaError as error:
                data = self._error(item, error)
                decided = True
            size = len(data.records) if data.records is not None else 0
            if size:
                total += size
                budget = max(0, budget - size)
                whole_batch_due = False
            self._results.append((key, item, data))
        self._bytes = total
        return decided or total >= self._min_bytes

    def answer(self) -> FetchResponse:
        """What was read, as a response; in a session only what changed since the last one."""
        session = self._session
        incremental = session is not None and self._request.session_epoch > INITIAL_EPOCH
        if self._ctx.charge is not None and self._ctx.charge.fetched(self._bytes):
            return self._put_off(session, incremental=incremental)
        topics: dict[str | UUID, FetchableTopicResponse] = {}
        hints = self._hints
        for key, item, data in self._results:
            if session is not None and not session.keep_changed(key, data) and incremental:
                continue
            topic = topics.get(item.topic)
            if topic is None:
                topic = topics[item.topic] = self._topic_answer(item.topic)
            topic.partitions.append(data)
        return FetchResponse(
            session_id=session.id if session is not None else 0,
            responses=list(topics.values()),
            node_endpoints=hints.endpoints(NodeEndpoint) if hints is not None else [],
        )

    def _put_off(self, session: FetchSession | None, *, incremental: bool) -> FetchResponse:
        """Nothing, as the client has had its share; it asks again later. A session whose begin it misses is none."""
        if session is not None and not incremental:
            self._ctx.broker.fetch_sessions.close(session.id)
            session = None
        return FetchResponse(session_id=session.id if session is not None else 0)

    def park(self) -> None:
        """Wait for more bytes; the answer is then read afresh, so nothing of this one is held meanwhile."""
        request = self._request
        self._results = []
        waiting = DelayedFetch(
            self._reads,
            min_bytes=self._min_bytes,
            read_committed=request.isolation_level == 1,
            respond=self._respond,
        )
        if not waiting.try_complete():
            keys = [read.partition.topic_partition for read in self._reads]
            purgatory = self._ctx.broker.replica_manager.fetch_purgatory
            purgatory.watch(waiting, keys, min(request.max_wait_ms, MAX_WAIT_MS))
            self._ctx.on_disconnect(waiting.cancel)

    def _respond(self) -> None:
        if self._ctx.charge is not None:
            self._ctx.charge.resume()
        self.read()
        self._ctx.respond(self.answer())

    # -- one partition ---------------------------------------------------------------------------------------------

    def _read_one(self, item: FetchItem, budget: int, whole_batch_due: bool) -> PartitionData:
        """Raises KafkaError for whatever is wrong with this partition."""
        wanted = item.request
        broker = self._ctx.broker
        topic = self._topic_name(item)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        partition = broker.replica_manager.partition(topic, wanted.partition)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        log = partition.log
        if wanted.last_fetched_epoch >= 0:
            diverging = self._divergence(partition, wanted)
            if diverging is not None:
                return diverging
        read_committed = self._request.isolation_level == 1
        max_bytes = min(wanted.partition_max_bytes, budget)
        try:
            found = partition.read(
                wanted.fetch_offset,
                max(0, max_bytes),
                min_one_batch=whole_batch_due,
                read_committed=read_committed,
                hard_limit=self._version < SINCE_WHOLE_BATCHES,
                lend=self._version >= SINCE_CURRENT_FORMAT,
            )
        except LogDirFailedError as error:
            raise broker.replica_manager.checked_io(partition, error) from error
        records = found.records
        if self._version < SINCE_ZSTD and len(records):
            records = self._converted(partition, wanted.fetch_offset, found)
        aborted = None
        if read_committed:
            aborted = [
                AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
                for transaction in found.aborted_transactions or ()
            ]
        self._reads.append(
            AwaitedRead(partition, wanted.fetch_offset, wanted.partition_max_bytes, partition.leader_epoch)
        )
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=aborted,
            records=cast(Buffer, records),
        )

    def _divergence(self, partition: Partition, wanted: FetchPartition) -> PartitionData | None:
        """Tell a reader whose log parted from ours before its fetch offset where that was (KIP-595)."""
        end = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if end.epoch < 0 or end.end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no epoch up to {wanted.last_fetched_epoch} is known")
        if end.epoch >= wanted.last_fetched_epoch and end.end_offset >= wanted.fetch_offset:
            return None
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.log.high_watermark,
            last_stable_offset=partition.log.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            diverging_epoch=EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset),
            records=b"",
        )

    def _converted(self, partition: Partition, fetch_offset: int, found: FetchData) -> Sendable:
        """Records in a format that the request's version may be answered with."""
        config = partition.log.config
        if config.compression_type == ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "reading zstd needs Fetch version 10")
        if self._version >= SINCE_CURRENT_FORMAT:
            return found.records
        return down_convert(found.data, 0 if self._version <= 1 else 1, fetch_offset=fetch_offset)

    def _topic_answer(self, topic: str | UUID) -> FetchableTopicResponse:
        if isinstance(topic, UUID):
            return FetchableTopicResponse(topic_id=topic, partitions=[])
        return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])

    def _error(self, item: FetchItem, error: KafkaError) -> PartitionData:
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version <= 5:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = PartitionData(partition_index=item.request.partition, error_code=code, high_watermark=-1, records=b"")
        if code in HINTED_ERRORS and self._version >= SINCE_LEADER_HINTS:
            self._hints = self._hints or LeaderHints(self._ctx)
            name = self._topic_name(item)
            if name is not None:
                answer.current_leader = self._hints.leader(name, item.request.partition, LeaderIdAndEpoch)
        return answer

    def _topic_name(self, item: FetchItem) -> str | None:
        return self._ctx.broker.metadata.topic_name(item.topic) if isinstance(item.topic, UUID) else item.topic
