"""The acknowledgements in ShareFetch and ShareAcknowledge requests (Kafka: KafkaApis.handleAcknowledgements)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from ...protocol.acls import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicIdPartition
from ..runtime.loop_sharing import CountBudget
from ..share.record_state import AcknowledgementType
from ..share.share_partition import ShareAcknowledgementBatch

if TYPE_CHECKING:
    from ...protocol.messages.share_acknowledge import AcknowledgementBatch as AcknowledgeBatch
    from ...protocol.messages.share_acknowledge import AcknowledgeTopic
    from ...protocol.messages.share_fetch import AcknowledgementBatch as FetchBatch
    from ...protocol.messages.share_fetch import FetchTopic
    from ..metadata.metadata_cache import MetadataCache
    from ..share.share_partition_manager import SharePartitionManager
    from .request_context import RequestContext

SINCE_RENEW = 2
"""The version of both APIs that adds the renewal of acquisition locks."""
MAX_MEMBER_ID_CHARACTERS = 36

AcknowledgeResults = dict[tuple[UUID, int], KafkaError | None]
"""The result of each partition by topic id and partition."""


def check_member(group_id: str | None, member_id: str | None, *, is_enabled: bool) -> tuple[str, str]:
    """Return the group id and member id of a request. Raises KafkaError UNSUPPORTED_VERSION, INVALID_REQUEST."""
    if not is_enabled:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The cluster does not serve share groups.")
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not member_id or len(member_id) > MAX_MEMBER_ID_CHARACTERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group_id, member_id


class ShareAcknowledgements:
    """The acknowledgements of one request."""

    def __init__(
        self,
        ctx: RequestContext,
        metadata_cache: MetadataCache,
        manager: SharePartitionManager,
        *,
        is_renew_ack: bool,
    ) -> None:
        self._ctx = ctx
        self._metadata_cache = metadata_cache
        self._manager = manager
        self._is_renew_ack = is_renew_ack
        self._results: AcknowledgeResults = {}
        self._outcome: asyncio.Future[dict[TopicIdPartition, KafkaError | None]] | None = None

    async def apply(
        self, group_id: str, member_id: str, topics: Iterable[FetchTopic] | Iterable[AcknowledgeTopic]
    ) -> AcknowledgeResults:
        """Acknowledge the records that the request names; return when the changes are durable."""
        await self.submit(group_id, member_id, topics)
        return await self.results()

    async def submit(
        self, group_id: str, member_id: str, topics: Iterable[FetchTopic] | Iterable[AcknowledgeTopic]
    ) -> None:
        """Change the states of the records that the request names; `results` waits until the changes are durable."""
        wanted: dict[TopicIdPartition, list[ShareAcknowledgementBatch]] = {}
        budget = CountBudget()
        for topic in topics:
            name = self._metadata_cache.topic_name(topic.topic_id)
            for partition in topic.partitions:
                await budget.step(1 + len(partition.acknowledgement_batches))
                if not partition.acknowledgement_batches:
                    continue  # as in Kafka, the response does not have it
                error, batches = self._check(name, partition.partition_index, partition.acknowledgement_batches)
                if name is not None and error is None:
                    wanted[TopicIdPartition(topic.topic_id, name, partition.partition_index)] = batches
                else:
                    self._results[topic.topic_id, partition.partition_index] = error
        if not wanted:
            return
        outcome: asyncio.Future[dict[TopicIdPartition, KafkaError | None]]
        outcome = self._outcome = asyncio.get_running_loop().create_future()

        def done(results: dict[TopicIdPartition, KafkaError | None]) -> None:
            if not outcome.done():
                outcome.set_result(results)

        self._manager.acknowledge(group_id, member_id, wanted, done)

    async def results(self) -> AcknowledgeResults:
        """Return the result of each partition when the changes of `submit` are durable."""
        if self._outcome is not None:
            for (topic_id, _, index), result in (await self._outcome).items():
                self._results[topic_id, index] = result
        return self._results

    def _check(
        self, name: str | None, index: int, batches: Iterable[FetchBatch] | Iterable[AcknowledgeBatch]
    ) -> tuple[KafkaError | None, list[ShareAcknowledgementBatch]]:
        """Return the batches to acknowledge, or the error of the partition."""
        ctx = self._ctx
        if name is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID), []
        found: list[ShareAcknowledgementBatch] = []
        most = AcknowledgementType.RENEW if ctx.api_version >= SINCE_RENEW else AcknowledgementType.REJECT
        previous = -1
        for batch in batches:
            first_offset, last_offset, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
            if (
                not previous <= first_offset <= last_offset
                or not types
                or (len(types) > 1 and len(types) != last_offset - first_offset + 1)
                or not 0 <= min(types) <= max(types) <= most
                or (AcknowledgementType.RENEW in types and not self._is_renew_ack)
            ):
                return KafkaError(ErrorCode.INVALID_REQUEST), []
            previous = last_offset
            found.append(ShareAcknowledgementBatch(first_offset, last_offset, types))
        if not ctx.is_authorized(AclOperation.READ, AclResourceType.TOPIC, name):
            return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), []
        if not self._metadata_cache.has_partition(name, index):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), []
        return None, found
