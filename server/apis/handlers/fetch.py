"""Fetch (key 1): records from the offsets asked for, now or when enough of them are there.

Version 3 (KIP-74) bounds the whole answer: from 3 on its first non-empty partition holds at least one whole batch, and
a later one whose first batch does not fit is empty, where older readers get a part of it. 4 adds isolation levels; 7
incremental sessions (KIP-227); 9 leader epoch fencing (KIP-320); 11 lets consumers read from followers that are nearer
(KIP-392); 12 detects divergence (KIP-595); 13 names topics by id (KIP-516); 15 tells which life of a follower asks
(KIP-903); 16 tells who leads if this broker does not (KIP-951). Readers of versions 0-3 get records converted to
the format they know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast
from uuid import UUID

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
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
from ....storage.record_conversion import down_convert
from ...replication.delayed_fetch import CONSUMER, FetchParams, FetchResult
from ...replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchItem,
    FetchSession,
    PartitionKey,
    requested_items,
)
from ...runtime.turns import FETCHED_PARTITIONS, LongWork, Steps
from ..leader_hints import LeaderHints
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...config.settings import Settings
    from ...replication.fetch_session import FetchSessions
    from ...runtime.ports import Work
    from ..ports import ClusterMetadata, Replicas

ZSTD = "zstd"
MOST_CONVERTED_BYTES = 4 << 20
"""In one answer to a reader for whom records have to be brought into another format, each of them in Python."""
CONVERSION_LANE = "conversion"
SINCE_WHOLE_BATCHES = 3
SINCE_CURRENT_FORMAT = 4
SINCE_SESSIONS = 7
SINCE_ZSTD = 10
SINCE_ANY_REPLICA = 11
SINCE_TOPIC_IDS = 13
SINCE_REPLICA_STATE = 15
SINCE_LEADER_HINTS = 16
HINTED_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    ctx: RequestContext,
    request: FetchRequest,
    *,
    config: Settings,
    fault: Callable[[str], bool],
    fetch_sessions: FetchSessions,
    long_work: LongWork,
    metadata: ClusterMetadata,
    replica_manager: Replicas,
    work: Work,
) -> FetchResponse | None:
    """Answer now if anything calls for it, else when there is enough."""
    fetch = _Fetch(ctx, request, fetch_sessions, metadata, replica_manager)
    if fault("fetch-session-lost"):
        fetch_sessions.close(request.session_id)
    try:
        items = fetch.open_session()
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    on_resume = None if ctx.charge is None else ctx.charge.resume
    respond = fetch.respond
    if ctx.api_version < SINCE_CURRENT_FORMAT:
        respond = partial(fetch.convert, work, long_work)
    elif len(items) > FETCHED_PARTITIONS:
        respond = partial(fetch.respond_in_turns, long_work)
    waiting = replica_manager.fetch_records(fetch.params(items, config.fetch_max_bytes), respond, on_resume=on_resume)
    if waiting is not None:
        ctx.on_disconnect(waiting.cancel)
    return None


def _converted(result: FetchResult, fetch_offset: int, magic: int) -> FetchResult:
    """What was found in one partition, in an older format."""
    if isinstance(result, KafkaError) or not len(result.records):
        return result
    try:
        # Nothing is lent to readers of versions that have to be converted for.
        result.records = down_convert(cast(Buffer, result.records), magic, fetch_offset=fetch_offset)
    except KafkaError as error:
        return error.as_result()
    return result


class _Fetch:
    """One fetch request while it is being served."""

    __slots__ = (
        "_asked",
        "_by_id",
        "_ctx",
        "_follower",
        "_hints",
        "_may_follow",
        "_metadata",
        "_replicas",
        "_request",
        "_session",
        "_sessions",
        "_version",
    )

    def __init__(
        self,
        ctx: RequestContext,
        request: FetchRequest,
        sessions: FetchSessions,
        metadata: ClusterMetadata,
        replica_manager: Replicas,
    ) -> None:
        self._ctx = ctx
        self._request = request
        self._sessions = sessions
        self._metadata = metadata
        self._replicas = replica_manager
        self._version = ctx.api_version
        self._by_id = ctx.api_version >= SINCE_TOPIC_IDS
        asking = request.replica_state.replica_id if self._version >= SINCE_REPLICA_STATE else request.replica_id
        self._follower = max(asking, CONSUMER)
        """The broker that follows; CONSUMER for everybody else."""
        # Only brokers may read what is not committed, and they may read everything.
        self._may_follow = self._follower != CONSUMER and (
            not ctx.is_guarded or ctx.may(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
        )
        ctx.is_followers = self._may_follow
        self._session: FetchSession | None = None
        self._asked: list[tuple[FetchItem, str | ErrorCode]] = []
        """What is to be answered, in this order, with the names of the topics or why they are not read."""
        self._hints: LeaderHints | None = None

    def open_session(self) -> dict[PartitionKey, FetchItem]:
        """Find out which partitions are to be read. Raises KafkaError for a session the broker does not know."""
        request, sessions = self._request, self._sessions
        epoch = request.session_epoch
        if self._version < SINCE_SESSIONS or epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            items = requested_items(request, uses_topic_ids=self._by_id)
            if self._version >= SINCE_SESSIONS:
                if request.session_id:
                    sessions.close(request.session_id)
                if epoch == INITIAL_EPOCH:
                    now = self._replicas.loop_time()
                    self._session = sessions.open(
                        items, uses_topic_ids=self._by_id, now=now, is_follower=self._may_follow
                    )
            return items
        now = self._replicas.loop_time()
        self._session = sessions.resume(request, uses_topic_ids=self._by_id, now=now)
        return {} if self._session is None else self._session.items

    def params(self, items: dict[PartitionKey, FetchItem], most_bytes: int) -> FetchParams:
        """What is to be read, and when to answer."""
        ctx, request = self._ctx, self._request
        topic_name, guarded = self._metadata.topic_name, ctx.is_guarded and not self._may_follow
        follower = self._follower
        wanted: list[tuple[str, FetchPartition]] = []
        for item in items.values():
            name = topic_name(item.topic) if isinstance(item.topic, UUID) else item.topic
            if name is None:
                self._asked.append((item, ErrorCode.UNKNOWN_TOPIC_ID))
            elif guarded and (follower != CONSUMER or not ctx.may(AclOperation.READ, AclResourceType.TOPIC, name)):
                self._asked.append((item, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            else:
                self._asked.append((item, name))
                wanted.append((name, item.request))
        # Before version 3 a request has no limit of its own, but the broker has. More than may be answered is not
        # worth waiting for.
        max_bytes = min(request.max_bytes, most_bytes)
        if self._version < SINCE_CURRENT_FORMAT:
            max_bytes = min(max_bytes, MOST_CONVERTED_BYTES)
        if ctx.charge is not None and follower == CONSUMER:
            max_bytes = min(max_bytes, ctx.charge.most_fetch_bytes())
        has_errors = len(wanted) < len(self._asked)
        params = FetchParams(
            wanted,
            0 if has_errors else request.max_wait_ms,
            min(request.min_bytes, max_bytes),
            max_bytes,
            "transactions committed" if request.isolation_level == 1 else "high watermark",
            self._version < SINCE_WHOLE_BATCHES,
            self._version >= SINCE_CURRENT_FORMAT,
        )
        if follower != CONSUMER:
            params.follower, params.isolation = follower, "log end"
            params.follower_epoch = request.replica_state.replica_epoch
        elif self._version >= SINCE_ANY_REPLICA:
            params.any_replica = True
            if request.rack_id:
                params.rack, params.listener = request.rack_id, ctx.listener.name
        return params

    def convert(self, work: Work, long_work: LongWork, results: list[FetchResult]) -> None:
        """Answer with what was found in the format that the reader knows, into which it is brought beside the loop."""
        magic = 0 if self._version <= 1 else 1
        offsets = [item.request.fetch_offset for item, name in self._asked if isinstance(name, str)]

        def convert_all() -> list[FetchResult]:
            return [_converted(result, offset, magic) for result, offset in zip(results, offsets, strict=True)]

        def converted(made: list[FetchResult] | None, error: BaseException | None) -> None:
            if made is None:
                self._ctx.finish(None, error)
            elif len(made) > FETCHED_PARTITIONS:
                self.respond_in_turns(long_work, made)
            else:
                self.respond(made)

        work.submit(CONVERSION_LANE, convert_all, converted)

    def respond(self, results: list[FetchResult]) -> None:
        """Answer with what was found; in a session only with what changed since the last answer."""
        if not self._is_put_off(results):
            topics: list[FetchableTopicResponse] = []
            self._add_answers(topics, self._asked, iter(results))
            self._ctx.respond(self._response(topics))

    def respond_in_turns(self, long_work: LongWork, results: list[FetchResult]) -> None:
        """Likewise, for very many partitions."""
        if not self._is_put_off(results):
            long_work.run(self._answering(results), self._ctx.finish)

    def _answering(self, results: list[FetchResult]) -> Steps[FetchResponse]:
        topics: list[FetchableTopicResponse] = []
        found = iter(results)
        for first in range(0, len(self._asked), FETCHED_PARTITIONS):
            self._add_answers(topics, self._asked[first : first + FETCHED_PARTITIONS], found)
            yield
        return self._response(topics)

    def _is_put_off(self, results: list[FetchResult]) -> bool:
        """Whether the client is over its quota; if so it has been answered."""
        charge = self._ctx.charge
        if charge is None or self._follower != CONSUMER:
            return False
        size = sum(len(result.records) for result in results if not isinstance(result, KafkaError))
        if not charge.fetched(size):
            return False
        self._ctx.respond(self._put_off(self._session, incremental=self._request.session_epoch > INITIAL_EPOCH))
        return True

    def _add_answers(
        self,
        topics: list[FetchableTopicResponse],
        asked: list[tuple[FetchItem, str | ErrorCode]],
        found: Iterator[FetchResult],
    ) -> None:
        session = self._session
        incremental = session is not None and self._request.session_epoch > INITIAL_EPOCH
        last: str | UUID | None = None
        if topics:
            last = topics[-1].topic_id if self._by_id else topics[-1].topic
        for item, name in asked:
            data = self._answer(item, name, next(found)) if isinstance(name, str) else self._unread(item, name)
            if (
                session is not None
                and not session.keep_changed((item.topic, data.partition_index), data)
                and incremental
            ):
                continue
            if item.topic != last:  # topics are merged only where they are neighbours, as in Kafka
                last = item.topic
                topics.append(self._topic_answer(item.topic))
            topics[-1].partitions.append(data)

    def _response(self, topics: list[FetchableTopicResponse]) -> FetchResponse:
        return FetchResponse(
            session_id=self._session.id if self._session is not None else 0,
            responses=topics,
            node_endpoints=self._hints.endpoints(NodeEndpoint) if self._hints is not None else [],
        )

    def _put_off(self, session: FetchSession | None, *, incremental: bool) -> FetchResponse:
        """An empty answer, as the client is over its quota and has to ask again. A session that was to begin with this
        answer is dropped.
        """
        if session is not None and not incremental:
            self._sessions.close(session.id)
            session = None
        return FetchResponse(session_id=session.id if session is not None else 0)

    # -- one partition ---------------------------------------------------------------------------------------------

    def _answer(self, item: FetchItem, topic: str, result: FetchResult) -> PartitionData:
        if isinstance(result, KafkaError):
            return self._error(item, topic, result)
        records = result.records
        if self._version < SINCE_ZSTD and len(records):
            try:
                self._check_codec(topic, item.request.partition)
            except KafkaError as error:
                return self._error(item, topic, error)
        answer = PartitionData(
            partition_index=item.request.partition,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=result.preferred_read_replica,
            records=cast(Buffer, records),
        )
        if self._request.isolation_level == 1:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
                for transaction in result.aborted_transactions or ()
            ]
        if result.diverging_epoch is not None:
            epoch, end_offset = result.diverging_epoch
            answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return answer

    def _check_codec(self, topic: str, index: int) -> None:
        """Raises KafkaError if the request's version may not be answered with what the topic compresses with."""
        if self._replicas.log_config(topic, index).compression_type == ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "reading zstd needs Fetch version 10")

    def _topic_answer(self, topic: str | UUID) -> FetchableTopicResponse:
        if isinstance(topic, UUID):
            return FetchableTopicResponse(topic_id=topic, partitions=[])
        return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])

    def _unread(self, item: FetchItem, code: ErrorCode) -> PartitionData:
        """The answer about a topic that was not even looked for."""
        return PartitionData(
            partition_index=item.request.partition,
            error_code=code,
            high_watermark=-1,
            records=b"",
        )

    def _error(self, item: FetchItem, topic: str, error: KafkaError) -> PartitionData:
        code, index = error.code, item.request.partition
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version <= 5:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")
        if code in HINTED_ERRORS and self._version >= SINCE_LEADER_HINTS:
            self._hints = self._hints or LeaderHints(self._metadata, self._ctx.listener.name)
            answer.current_leader = self._hints.leader(topic, index, LeaderIdAndEpoch)
        return answer
