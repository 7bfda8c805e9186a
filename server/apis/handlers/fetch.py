"""Fetch (key 1): records from the requested offsets, immediately or when enough records are available.

Version 3 (KIP-74) limits the whole response: from 3 on its first non-empty partition has at least one whole batch, and
a later partition whose first batch does not fit is empty, where older versions return a part of it. 4 adds isolation
levels; 7 incremental sessions (KIP-227); 9 leader epoch fencing (KIP-320); 11 lets consumers read from closer followers
(KIP-392); 12 detects divergence (KIP-595); 13 names topics by id (KIP-516); 15 has the epoch of a follower (KIP-903);
16 returns the current leader after an error (KIP-951). Records for versions 0-3 are converted to the format of the
version, which excludes zstd. Versions 4-9 return zstd records as they are stored, as in Kafka 4; Kafka 3.9 refused them
with UNSUPPORTED_COMPRESSION_TYPE (KIP-110).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast
from uuid import UUID

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.hot_fetch import at_offset
from ....protocol.joint_fetch import RecordsResponse
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
from ....storage.log_values import FetchIsolation
from ....storage.record_conversion import ConversionBudget, down_convert
from ...replication.delayed_fetch import CONSUMER, FetchCallback, FetchParams, FetchResult
from ...replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    CachedPartition,
    FetchSession,
    PartitionKey,
    requested_items,
)
from ...runtime.loop_sharing import SlicedWork, Steps
from ..leader_hints import LeaderHints
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...config.settings import Settings
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.delayed_fetch import DelayedFetch, LongFetch
    from ...replication.fetch_session import FetchSessionCache
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.ports import Work
    from ..joint_fetch import FetchGroup
    from ..request_context import Respond

ANSWERED_PARTITIONS_PER_TURN = 500
"""Partitions of a fetch whose responses are built: a millisecond or two."""

MAX_CONVERTED_BYTES = 4 << 20
"""Bytes converted for one response, record by record in Python: of the stored batches, and of their decompressed
records."""
CONVERSION_LANE = "conversion"
FOLLOWER_SEND_BUFFER_BYTES = 384 << 10
"""The send buffer of connections of followers, whose responses have megabytes. Processor time of `sendfile` and the
receiver per GB, in responses of 2 MB: 0.51 s with 100 KB, 0.44 with 192 and 256, 0.37 with 384 and 512, 0.62 with 1 MB;
context switches per MB: 8.4, 5.6 and 4.7, 2.9 and 2.8, 2.0."""
SINCE_WHOLE_BATCHES = 3
SINCE_CURRENT_FORMAT = 4
SINCE_SESSIONS = 7
SINCE_ANY_REPLICA = 11
SINCE_TOPIC_IDS = 13
SINCE_REPLICA_STATE = 15
SINCE_LEADER_HINTS = 16
LOG_END, HIGH_WATERMARK, TXN_COMMITTED = (
    FetchIsolation.LOG_END,
    FetchIsolation.HIGH_WATERMARK,
    FetchIsolation.TXN_COMMITTED,
)
"""Module names, because Python 3.11 takes ten times as long to find a member of an enum class."""
HINTED_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    ctx: RequestContext,
    request: FetchRequest,
    *,
    config: Settings,
    fault: Callable[[str], bool],
    fetch_sessions: FetchSessionCache,
    sliced_work: SlicedWork,
    metadata_cache: MetadataCache,
    replica_manager: ReplicaManager,
    work: Work,
) -> FetchResponse | None:
    """Read the partitions. Returns None before the response: `ReplicaManager` calls back, immediately or when enough
    bytes are available, without a task per request.
    """
    fetch = PendingFetch(ctx, request, fetch_sessions, metadata_cache, replica_manager)
    if fault("fetch-session-lost"):
        fetch_sessions.close(request.session_id)
    try:
        items = fetch.open_session()
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    on_resume = None if ctx.quota_usage is None else ctx.quota_usage.resume
    respond = fetch.respond
    if ctx.api_version < SINCE_CURRENT_FORMAT:
        respond = partial(fetch.convert, work, sliced_work)
    elif len(items) > ANSWERED_PARTITIONS_PER_TURN:
        respond = partial(fetch.respond_in_turns, sliced_work)
    fetch.fetch_params = fetch.params(items, config.fetch_max_bytes)
    ctx.fetch = fetch, fetch.read(respond, on_resume)
    return None


def _converted(result: FetchResult, fetch_offset: int, magic: int, budget: ConversionBudget) -> FetchResult:
    """Return the result of one partition with its records in an older format."""
    if isinstance(result, KafkaError) or not len(result.records):
        return result
    try:
        # Records for versions that need a conversion were read with `as_file_slice=False`.
        result.records = down_convert(cast(Buffer, result.records), magic, fetch_offset=fetch_offset, budget=budget)
    except KafkaError as error:
        return error.as_result()
    return result


class PendingFetch:
    """One fetch request while it is being served."""

    __slots__ = (
        "_asked",
        "_ctx",
        "_follower",
        "_hints",
        "_may_follow",
        "_metadata",
        "_replicas",
        "_response_frame",
        "_sessions",
        "fetch_params",
        "group",
        "request",
        "session",
        "uses_topic_ids",
        "version",
    )

    def __init__(
        self,
        ctx: RequestContext,
        request: FetchRequest,
        sessions: FetchSessionCache,
        metadata_cache: MetadataCache,
        replica_manager: ReplicaManager,
    ) -> None:
        self._ctx = ctx
        self.request = request
        self._sessions = sessions
        self._metadata = metadata_cache
        self._replicas = replica_manager
        self.version = ctx.api_version
        self.uses_topic_ids = ctx.api_version >= SINCE_TOPIC_IDS
        asking = request.replica_state.replica_id if self.version >= SINCE_REPLICA_STATE else request.replica_id
        self._follower = max(asking, CONSUMER)
        """The broker id of a follower; CONSUMER for other clients."""
        # Only brokers may read uncommitted records, and they may read all topics.
        self._may_follow = self._follower != CONSUMER and (
            not ctx.has_authorizer
            or ctx.is_authorized(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
        )
        ctx.is_replica_fetch = self._may_follow
        self.session: FetchSession | None = None
        self._asked: list[tuple[CachedPartition, str | ErrorCode]] = []
        """The items of the response in its order, with the name of their topic or the error."""
        self._hints: LeaderHints | None = None
        self.fetch_params: FetchParams
        self._response_frame: RecordsResponse | None = None
        """Set for a request that repeats another one."""
        self.group: FetchGroup | None = None
        """The requests that get its results, while it waits with others."""

    def open_session(self) -> dict[PartitionKey, CachedPartition]:
        """Return the partitions to read. Raise KafkaError for an unknown session."""
        request, sessions = self.request, self._sessions
        epoch = request.session_epoch
        if self.version < SINCE_SESSIONS or epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            items = requested_items(request, uses_topic_ids=self.uses_topic_ids)
            if self.version >= SINCE_SESSIONS:
                if request.session_id:
                    sessions.close(request.session_id)
                if epoch == INITIAL_EPOCH:
                    now = self._replicas.loop_time()
                    client = self._ctx.session
                    self.session = sessions.open(
                        items,
                        uses_topic_ids=self.uses_topic_ids,
                        now=now,
                        is_follower=self._may_follow,
                        client=(client.client_host, client.client_port),
                    )
                    if self._may_follow:
                        self._ctx.channel.enlarge_send_buffer(FOLLOWER_SEND_BUFFER_BYTES)
            return items
        now = self._replicas.loop_time()
        self.session = sessions.resume(request.session_id, epoch, request, uses_topic_ids=self.uses_topic_ids, now=now)
        return {} if self.session is None else self.session.items

    def params(self, items: dict[PartitionKey, CachedPartition], most_bytes: int) -> FetchParams:
        """Return the partitions to read and the conditions of the response."""
        ctx, request = self._ctx, self.request
        topic_name, guarded = self._metadata.topic_name, ctx.has_authorizer and not self._may_follow
        follower = self._follower
        wanted: list[tuple[str, FetchPartition]] = []
        for item in items.values():
            name = topic_name(item.topic) if isinstance(item.topic, UUID) else item.topic
            if name is None:
                self._asked.append((item, ErrorCode.UNKNOWN_TOPIC_ID))
            elif guarded and (
                follower != CONSUMER or not ctx.is_authorized(AclOperation.READ, AclResourceType.TOPIC, name)
            ):
                self._asked.append((item, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            else:
                self._asked.append((item, name))
                wanted.append((name, item.request))
        # The requests before version 3 contain no limit, but the broker has one. The request does not wait for more
        # bytes than the limit.
        max_bytes = min(request.max_bytes, most_bytes)
        if self.version < SINCE_CURRENT_FORMAT:
            max_bytes = min(max_bytes, MAX_CONVERTED_BYTES)
        if ctx.quota_usage is not None and follower == CONSUMER:
            max_bytes = min(max_bytes, ctx.quota_usage.most_fetch_bytes())
        has_errors = len(wanted) < len(self._asked)
        params = FetchParams(
            wanted,
            0 if has_errors else request.max_wait_ms,
            min(request.min_bytes, max_bytes),
            max_bytes,
            TXN_COMMITTED if request.isolation_level == 1 else HIGH_WATERMARK,
            self.version < SINCE_WHOLE_BATCHES,
            self.version >= SINCE_CURRENT_FORMAT,
        )
        if follower != CONSUMER:
            params.follower, params.isolation = follower, LOG_END
            params.follower_epoch = request.replica_state.replica_epoch
        elif self.version >= SINCE_ANY_REPLICA:
            params.any_replica = True
            if request.rack_id:
                params.rack, params.listener = request.rack_id, ctx.listener.name
        return params

    def read(
        self, respond: FetchCallback, on_resume: Callable[[], None] | None = None
    ) -> DelayedFetch | LongFetch | None:
        """Read the partitions for `respond`. Return the wait, if there is one."""
        waiting = self._replicas.fetch_records(self.fetch_params, respond, on_resume=on_resume)
        if waiting is not None:
            self._ctx.on_disconnect(waiting.cancel)
        return waiting

    def convert(self, work: Work, sliced_work: SlicedWork, results: list[FetchResult]) -> None:
        """Respond with the records converted to the format of the version, in a lane."""
        magic = 0 if self.version <= 1 else 1
        offsets = [item.request.fetch_offset for item, name in self._asked if isinstance(name, str)]

        def convert_all() -> list[FetchResult]:
            budget = ConversionBudget(MAX_CONVERTED_BYTES)
            return [_converted(result, offset, magic, budget) for result, offset in zip(results, offsets, strict=True)]

        def converted(made: list[FetchResult] | None, error: BaseException | None) -> None:
            if made is None:
                self._ctx.finish(None, error)
            elif len(made) > ANSWERED_PARTITIONS_PER_TURN:
                self.respond_in_turns(sliced_work, made)
            else:
                self.respond(made)

        work.submit(CONVERSION_LANE, convert_all, converted)

    def respond(self, results: list[FetchResult]) -> None:
        """Respond with the results; in a session only with the partitions that changed since the last response."""
        if self.group is not None:
            self.group.respond(results)
        elif self._response_frame is not None and self._respond_to_repeated(results[0]):
            pass
        elif not self._respond_if_over_quota(results):
            topics: list[FetchableTopicResponse] = []
            self._add_answers(topics, self._asked, iter(results))
            self._ctx.respond(self._response(topics))

    def respond_in_turns(self, sliced_work: SlicedWork, results: list[FetchResult]) -> None:
        """Respond in slices, for very many partitions."""
        if not self._respond_if_over_quota(results):
            sliced_work.run(self._answering(results), self._ctx.finish)

    def _answering(self, results: list[FetchResult]) -> Steps[FetchResponse]:
        topics: list[FetchableTopicResponse] = []
        found = iter(results)
        for first in range(0, len(self._asked), ANSWERED_PARTITIONS_PER_TURN):
            self._add_answers(topics, self._asked[first : first + ANSWERED_PARTITIONS_PER_TURN], found)
            yield
        return self._response(topics)

    def _respond_if_over_quota(self, results: list[FetchResult]) -> bool:
        """Return whether the client is over its quota, and send the empty response if it is."""
        quota_usage = self._ctx.quota_usage
        if quota_usage is None or self._follower != CONSUMER:
            return False
        size = sum(len(result.records) for result in results if not isinstance(result, KafkaError))
        if not quota_usage.record_fetch(size):
            return False
        self._ctx.respond(
            self._throttled_response(self.session, incremental=self.request.session_epoch > INITIAL_EPOCH)
        )
        return True

    def _add_answers(
        self,
        topics: list[FetchableTopicResponse],
        asked: list[tuple[CachedPartition, str | ErrorCode]],
        found: Iterator[FetchResult],
    ) -> None:
        session = self.session
        incremental = session is not None and self.request.session_epoch > INITIAL_EPOCH
        last: str | UUID | None = None
        if topics:
            last = topics[-1].topic_id if self.uses_topic_ids else topics[-1].topic
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
            session_id=self.session.id if self.session is not None else 0,
            responses=topics,
            node_endpoints=self._node_endpoints(),
        )

    def _node_endpoints(self) -> list[NodeEndpoint]:
        """Return the endpoints of the leaders in the response."""
        return self._hints.endpoints(NodeEndpoint) if self._hints is not None else []

    def _throttled_response(self, session: FetchSession | None, *, incremental: bool) -> FetchResponse:
        """Return an empty response: the client is over its quota and repeats its request. A session that would begin
        with this response is closed.
        """
        if session is not None and not incremental:
            self._sessions.close(session.id)
            session = None
        return FetchResponse(session_id=session.id if session is not None else 0)

    # -- with equal and repeated requests --------------------------------------------------------------------------

    @property
    def is_joinable(self) -> bool:
        """Whether its request alone determines the results, so that an equal request gets the same results."""
        request = self.request
        return (
            self._follower == CONSUMER
            and self._ctx.quota_usage is None
            and not self._ctx.has_authorizer
            and not request.rack_id
            and len(self._asked) == len(request.topics) == 1
            and len(request.topics[0].partitions) == 1
            and not request.forgotten_topics_data
        )

    @property
    def partition_key(self) -> PartitionKey:
        """The key of its only partition."""
        ((item, _),) = self._asked
        return item.topic, item.request.partition

    def joint_answer(self, results: list[FetchResult]) -> tuple[PartitionData, FetchResponse]:
        """Return the data of its only partition, and a response with it that has no session id."""
        ((item, name),) = self._asked
        (result,) = results
        assert isinstance(name, str), "a fetch with an error does not wait"
        data = self._answer(item, name, result)
        topic = self._topic_answer(item.topic)
        topic.partitions.append(data)
        return data, FetchResponse(responses=[topic], node_endpoints=self._node_endpoints())

    def read_again(self) -> list[FetchResult]:
        """Return the results for another request that has waited with this one."""
        return self._replicas.read_again(self.fetch_params)

    def repeat(self, respond: Respond, values: tuple[int, int, int], most_bytes: int) -> bool:
        """Become the next request of the same connection, for the same partition; `read` reads it.

        `values` are its correlation id, session epoch and offset; `respond` sends a response. Return False, with an
        unchanged session, if it is handled like any other request.
        """
        correlation_id, session_epoch, offset = values
        ((item, name),) = self._asked
        request, session = self.request, self.session
        if isinstance(item.topic, UUID) and self._metadata.topic_name(item.topic) != name:
            return False
        (topic,) = request.topics
        # A copy, because fetch sessions of equal requests refer to the previous one.
        partition = topic.partitions[0] = at_offset(topic.partitions[0], offset)
        if session is None:
            if session_epoch != request.session_epoch:
                return False
            item.request = partition
        else:
            sessions, key = self._sessions, (item.topic, partition.partition)
            if sessions.get(session.id) is not session or len(session.items) != 1 or session.items.get(key) is not item:
                return False
            try:
                now = self._replicas.loop_time()
                sessions.resume(session.id, session_epoch, request, uses_topic_ids=self.uses_topic_ids, now=now)
            except KafkaError:
                return False
            request.session_epoch = session_epoch
        self._ctx.begin_again(correlation_id, respond)
        params = self.fetch_params
        params.partitions = [(cast(str, name), partition)]
        params.max_bytes = min(request.max_bytes, most_bytes)
        params.min_bytes = min(request.min_bytes, params.max_bytes)
        params.has_waited = False
        self._hints = None
        if self._response_frame is None:
            self._response_frame = RecordsResponse(
                self.version, item.topic, partition.partition, is_read_committed=request.isolation_level == 1
            )
        return True

    def _respond_to_repeated(self, result: FetchResult) -> bool:
        """Respond with records. Return False, without a response, if the result is anything else."""
        if (
            isinstance(result, KafkaError)
            or type(result.records) is not bytes
            or not result.records
            or result.aborted_transactions
        ):
            return False
        assert self._response_frame is not None, "the request repeats another one"
        session, start = self.session, result.log_start_offset
        if session is not None:
            session.keep_sent(self.partition_key, result.high_watermark, start)
        offsets = result.high_watermark, result.last_stable_offset, start
        session_id = 0 if session is None else session.id
        ctx = self._ctx
        ctx.respond_encoded(self._response_frame.frame(ctx.correlation_id, session_id, offsets, result.records))
        return True

    # -- one partition ---------------------------------------------------------------------------------------------

    def _answer(self, item: CachedPartition, topic: str, result: FetchResult) -> PartitionData:
        if isinstance(result, KafkaError):
            return self._error(item, topic, result)
        records = result.records
        answer = PartitionData(
            partition_index=item.request.partition,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=result.preferred_read_replica,
            records=cast(Buffer, records),
        )
        if self.request.isolation_level == 1:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
                for transaction in result.aborted_transactions or ()
            ]
        if result.diverging_epoch is not None:
            epoch, end_offset = result.diverging_epoch
            answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return answer

    def _topic_answer(self, topic: str | UUID) -> FetchableTopicResponse:
        if isinstance(topic, UUID):
            return FetchableTopicResponse(topic_id=topic, partitions=[])
        return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])

    def _unread(self, item: CachedPartition, code: ErrorCode) -> PartitionData:
        """Return the error of a topic that was not read."""
        return PartitionData(
            partition_index=item.request.partition,
            error_code=code,
            high_watermark=-1,
            records=b"",
        )

    def _error(self, item: CachedPartition, topic: str, error: KafkaError) -> PartitionData:
        code, index = error.code, item.request.partition
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.version <= 5:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")
        if code in HINTED_ERRORS and self.version >= SINCE_LEADER_HINTS:
            self._hints = self._hints or LeaderHints(self._metadata, self._ctx.listener.name)
            answer.current_leader = self._hints.leader(topic, index, LeaderIdAndEpoch)
        return answer
