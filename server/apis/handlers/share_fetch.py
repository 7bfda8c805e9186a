"""ShareFetch (key 78): acquire records for a member of a share group, and acknowledge acquired ones (KIP-932).

A member has a share session per broker: its first request names the partitions, the following ones the changes. The
response contains batches of the log, and the ranges of offsets in them that the member has acquired. Version 2 adds the
record limit mode (KIP-1206) and the renewal of acquisition locks (KIP-1222).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast
from uuid import UUID

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ....protocol.schema import Buffer
from ....protocol.topic_partition import TopicIdPartition
from ...runtime.loop_sharing import CountBudget
from ...share.delayed_share_fetch import ShareFetch, ShareFetchResult
from ...share.record_state import AcquireMode
from ...share.share_partition_manager import LONGEST_WAIT_MS
from ...share.share_session import FINAL_EPOCH, INITIAL_EPOCH, SharePartitionId, ShareSession, ShareSessionKey
from ..leader_hints import LeaderHints
from ..request_context import RequestContext
from ..share_acknowledgements import SINCE_RENEW, AcknowledgeResults, ShareAcknowledgements, check_member

if TYPE_CHECKING:
    from ...config.settings import Settings
    from ...metadata.metadata_cache import MetadataCache
    from ...share.share_partition_manager import SharePartitionManager

HINTED_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

FetchResults = dict[SharePartitionId, ShareFetchResult]


async def handle(
    ctx: RequestContext,
    request: ShareFetchRequest,
    *,
    config: Settings,
    metadata_cache: MetadataCache,
    share_partition_manager: SharePartitionManager,
) -> ShareFetchResponse:
    """Acknowledge and acquire records; each partition of the response has its own errors.

    Raises KafkaError UNSUPPORTED_VERSION, INVALID_REQUEST, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH,
    SHARE_SESSION_LIMIT_REACHED.
    """
    manager = share_partition_manager
    group_id, member_id = check_member(request.group_id, request.member_id, is_enabled=manager.is_enabled)
    fetch = _ShareFetch(ctx, request, group_id, member_id, metadata_cache, manager)
    fetch.check_renewal()
    # Before the session is opened: a refused request must not change it.
    mode = fetch.acquire_mode()
    session = await fetch.open_session()
    is_final = request.share_session_epoch == FINAL_EPOCH
    acknowledgements = ShareAcknowledgements(ctx, metadata_cache, manager, is_renew_ack=request.is_renew_ack)
    if fetch.has_acknowledgements:
        # Before the fetch, as in Kafka: otherwise the acknowledgement of records that the member has lost would apply
        # to the records that this request acquires. The fetch does not wait for the acknowledgements to be durable,
        # and they do not wait for records.
        await acknowledgements.submit(group_id, member_id, request.topics)
    results: FetchResults = {}
    if not is_final and not fetch.is_renewal:
        results = await fetch.fetch(session, mode, config.fetch_max_bytes)
    acknowledged = await acknowledgements.results()
    if is_final:
        # Not the session that the member has now: it may have opened another one during the write.
        manager.release_session(session)
    return await fetch.response(session, results, acknowledged)


class _ShareFetch:
    """One request while it is being served."""

    def __init__(
        self,
        ctx: RequestContext,
        request: ShareFetchRequest,
        group_id: str,
        member_id: str,
        metadata_cache: MetadataCache,
        manager: SharePartitionManager,
    ) -> None:
        self._ctx = ctx
        self._request = request
        self._group_id = group_id
        self._member_id = member_id
        self._metadata_cache = metadata_cache
        self._manager = manager
        self.is_renewal = ctx.api_version >= SINCE_RENEW and request.is_renew_ack
        """Whether the request renews acquisition locks and therefore fetches no records."""
        self.has_acknowledgements = any(
            partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
        )

    def check_renewal(self) -> None:
        """Raise KafkaError INVALID_REQUEST if a request that renews acquisition locks would fetch records."""
        if self.is_renewal:
            request = self._request
            limits = {
                "maxBytes": request.max_bytes,
                "minBytes": request.min_bytes,
                "maxRecords": request.max_records,
                "maxWaitMs": request.max_wait_ms,
            }
            wrong = [f"{name} must be set to 0, " for name, value in limits.items() if value]
            if wrong:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "".join(wrong) + "if isRenewAck is true.")

    def acquire_mode(self) -> AcquireMode:
        """Return the acquire mode. Raises KafkaError INVALID_REQUEST."""
        try:
            return AcquireMode(self._request.share_acquire_mode)
        except ValueError:
            reason = f"{self._request.share_acquire_mode} is not a valid share acquire mode"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason) from None

    # -- session ---------------------------------------------------------------------------------------------------

    async def open_session(self) -> ShareSession:
        """Return the session of the request, brought up to date. Raises KafkaError."""
        ctx, request, sessions = self._ctx, self._request, self._manager.sessions
        key, epoch = ShareSessionKey(self._group_id, self._member_id), request.share_session_epoch
        if epoch == FINAL_EPOCH:
            return sessions.get(key)
        added: list[SharePartitionId] = []
        budget = CountBudget()
        for topic in request.topics:
            for partition in topic.partitions:
                added.append((topic.topic_id, partition.partition_index))
                await budget.step()
        if epoch != INITIAL_EPOCH:
            forgotten = [(one.topic_id, index) for one in request.forgotten_topics_data for index in one.partitions]
            return sessions.resume(key, epoch, added, forgotten)
        if self.has_acknowledgements:
            reason = "The first request of a share session contains acknowledgements."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        client, channel = ctx.session, ctx.channel
        try:
            session = sessions.open(key, added, channel, (client.client_host, client.client_port))
        except KafkaError as error:
            if error.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                raise
            # As in Kafka, the error is delayed: otherwise the client would repeat the request immediately.
            limit = error.as_result()
            await asyncio.sleep(max(0, min(request.max_wait_ms, LONGEST_WAIT_MS)) / 1000)
            raise limit from None
        channel.on_lost = lambda: sessions.on_disconnect(channel)
        if channel.is_lost:
            sessions.on_disconnect(channel)
        return session

    # -- fetch -----------------------------------------------------------------------------------------------------

    async def fetch(self, session: ShareSession, mode: AcquireMode, most_bytes: int) -> FetchResults:
        """Acquire records of the partitions of the session, perhaps after a wait for records."""
        ctx, request = self._ctx, self._request
        results: FetchResults = {}
        wanted: list[TopicIdPartition] = []
        budget = CountBudget()
        for topic_id, index in session.rotated():
            await budget.step()
            name = self._metadata_cache.topic_name(topic_id)
            if name is None:
                results[topic_id, index] = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            elif not ctx.is_authorized(AclOperation.READ, AclResourceType.TOPIC, name):
                results[topic_id, index] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif not self._metadata_cache.has_partition(name, index):
                results[topic_id, index] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                wanted.append(TopicIdPartition(topic_id, name, index))
        quota_usage = ctx.quota_usage
        max_bytes = min(request.max_bytes, most_bytes)
        if quota_usage is not None:
            if quota_usage.is_over_fetch_quota():
                return results  # over the quota: records that are not sent must not be acquired
            max_bytes = min(max_bytes, quota_usage.most_fetch_bytes())
        outcome: asyncio.Future[dict[TopicIdPartition, ShareFetchResult]]
        outcome = asyncio.get_running_loop().create_future()

        is_in_turn = True

        def respond(found: dict[TopicIdPartition, ShareFetchResult]) -> None:
            if not is_in_turn and quota_usage is not None:
                # The turn in which the records were read is not one of this coroutine, whose turns are timed.
                quota_usage.pause()
            if not outcome.done():
                outcome.set_result(found)

        share_fetch = ShareFetch(
            group_id=self._group_id,
            member_id=self._member_id,
            partitions=wanted,
            max_wait_ms=request.max_wait_ms,
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            max_records=request.max_records,
            batch_size=request.batch_size,
            acquire_mode=mode,
            isolation=self._manager.config_provider.settings(self._group_id).isolation,
            is_session_open=lambda: self._manager.sessions.is_open(session),
        )
        if quota_usage is not None:
            share_fetch.on_resume, share_fetch.on_pause = quota_usage.resume, quota_usage.pause
        partitions = await self._manager.begin_to_load(share_fetch)
        if not self._manager.sessions.is_open(session):
            return results  # it has ended since: its records would remain acquired until their locks expire
        waiting = self._manager.fetch_messages(share_fetch, partitions, respond)
        is_in_turn = False
        if waiting is not None and not outcome.done():

            def abandon() -> None:
                waiting.cancel()
                respond({})

            ctx.on_disconnect(abandon)
        found = await outcome
        size = 0
        for (topic_id, _, index), result in found.items():
            results[topic_id, index] = result
            size += 0 if isinstance(result, KafkaError) else len(result.records)
        if quota_usage is not None:
            quota_usage.record_sent_fetch(size)
        return results

    # -- response --------------------------------------------------------------------------------------------------

    async def response(
        self, session: ShareSession, results: FetchResults, acknowledged: AcknowledgeResults
    ) -> ShareFetchResponse:
        """Return the response; in a session it has only the partitions that have changed since the last response."""
        is_subsequent = self._request.share_session_epoch > INITIAL_EPOCH
        hints = LeaderHints(self._metadata_cache, self._ctx.listener.name)
        topics: dict[UUID, dict[int, PartitionData]] = {}
        budget = CountBudget()
        for (topic_id, index), result in results.items():
            await budget.step()
            data = self._partition(topic_id, index, result, hints)
            if is_subsequent:
                has_records, has_error = bool(data.acquired_records), data.error_code != 0
                if not session.keep_changed((topic_id, index), has_records=has_records, has_error=has_error):
                    continue
            topics.setdefault(topic_id, {})[index] = data
        for (topic_id, index), error in acknowledged.items():
            partitions = topics.setdefault(topic_id, {})
            if index not in partitions:
                partitions[index] = PartitionData(partition_index=index, records=b"")
            if error is not None:
                partitions[index].acknowledge_error_code = error.code
                partitions[index].acknowledge_error_message = error.message
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._manager.config_provider.settings(self._group_id).record_lock_duration_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=list(partitions.values()))
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=hints.endpoints(NodeEndpoint),
        )

    def _partition(self, topic_id: UUID, index: int, result: ShareFetchResult, hints: LeaderHints) -> PartitionData:
        if isinstance(result, KafkaError):
            data = PartitionData(partition_index=index, error_code=result.code, error_message=result.message)
            name = self._metadata_cache.topic_name(topic_id)
            if result.code in HINTED_ERRORS and name is not None:
                data.current_leader = hints.leader(name, index, LeaderIdAndEpoch)
            return data
        return PartitionData(
            partition_index=index,
            records=cast(Buffer, result.records),
            acquired_records=[
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in result.acquired
            ],
        )
