"""DescribeShareGroupOffsets (key 90): the start offsets of share groups (KIP-932), and their lag (KIP-1226)."""

from __future__ import annotations

from uuid import UUID

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ....protocol.messages.read_share_group_state_summary import PartitionResult
from ...coordinator.group.partition_metadata_client import EndOffset, PartitionMetadataClient
from ...coordinator.group.share.share_group_manager import ShareGroupManager
from ...metadata.metadata_cache import MetadataCache
from ...runtime.loop_sharing import CountBudget, lookup_steps
from ..request_context import RequestContext
from ..response_budget import ResponseBudget

UNKNOWN = -1
DENIED = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The client is not authorized to describe the topic.")


async def handle(
    ctx: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
    *,
    share_group_manager: ShareGroupManager,
    partition_metadata_client: PartitionMetadataClient,
    metadata_cache: MetadataCache,
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group independently; a null list of topics selects all topics with share state.

    Groups that do not fit in the response have the error COORDINATOR_LOAD_IN_PROGRESS: the client requests them again.
    """
    reader = _OffsetReader(ctx, share_group_manager, partition_metadata_client, metadata_cache)
    response = DescribeShareGroupOffsetsResponse()
    budget = ResponseBudget()
    for wanted in request.groups:
        group = DescribeShareGroupOffsetsResponseGroup(group_id=wanted.group_id)
        if not share_group_manager.are_served:
            group.error_code = ErrorCode.UNSUPPORTED_VERSION
        elif budget.is_exhausted:
            group.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        else:
            try:
                group.topics = await reader.read(wanted)
            except KafkaError as error:
                group.error_code, group.error_message = error.code, error.message
        budget.spend(sum(50 + len(topic.topic_name) + 40 * len(topic.partitions) for topic in group.topics))
        response.groups.append(group)
    return response


class _OffsetReader:
    """Reads the offsets of groups, one after the other."""

    def __init__(
        self,
        ctx: RequestContext,
        share_group_manager: ShareGroupManager,
        partition_metadata_client: PartitionMetadataClient,
        metadata_cache: MetadataCache,
    ) -> None:
        self._ctx = ctx
        self._share_group_manager = share_group_manager
        self._partition_metadata_client = partition_metadata_client
        self._metadata = metadata_cache
        self._budget = CountBudget()

    async def read(self, wanted: DescribeShareGroupOffsetsRequestGroup) -> list[DescribeShareGroupOffsetsResponseTopic]:
        """Return the offsets of the topics that the client may describe. Raises KafkaError, such as NOT_COORDINATOR."""
        await self._budget.step(lookup_steps(wanted.group_id))
        wanted_partitions: dict[UUID, frozenset[int]] = {}
        unknown: dict[UUID, list[int]] = {}
        others: list[DescribeShareGroupOffsetsResponseTopic] = []
        initialized = self._share_group_manager.state_manager.get_initialized_partitions(wanted.group_id)
        if wanted.topics is None:
            for topic_id, indexes in initialized.items():
                name = self._metadata.topic_name(topic_id)
                if name is not None and self._may_see(name):
                    wanted_partitions[topic_id] = indexes
                await self._budget.step(1 + len(indexes))
        else:
            for topic in wanted.topics:
                image = self._metadata.topic(topic.topic_name)
                if not self._may_see(topic.topic_name):
                    others.append(await self._without_offsets(topic, DENIED))
                elif image is None:
                    others.append(await self._without_offsets(topic, None))
                else:
                    indexes = frozenset(topic.partitions)
                    known = image.partitions.keys() & indexes
                    former = wanted_partitions.get(image.topic_id, frozenset())
                    wanted_partitions[image.topic_id] = former | known
                    unknown[image.topic_id] = sorted(indexes - known)
                    await self._budget.step(1 + len(indexes))
        state_manager = self._share_group_manager.state_manager
        summaries = await state_manager.read_summary(wanted.group_id, wanted_partitions)
        names = {topic_id: self._metadata.topic_name(topic_id) or "" for topic_id in wanted_partitions}
        ends = await self._partition_metadata_client.list_latest_offsets(
            (names[topic_id], one.partition)
            for topic_id, results in summaries.items()
            for one in results
            if _has_lag(one)
        )
        topics = []
        for topic_id, name in names.items():
            described = DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
            for one in summaries.get(topic_id, ()):
                described.partitions.append(_partition(one, ends.get((name, one.partition))))
                await self._budget.step()
            for partition in unknown.get(topic_id, ()):
                described.partitions.append(_no_offset(partition, None))
                await self._budget.step()
            topics.append(described)
        return topics + others

    async def _without_offsets(
        self, topic: DescribeShareGroupOffsetsRequestTopic, error: KafkaError | None
    ) -> DescribeShareGroupOffsetsResponseTopic:
        described = DescribeShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        for partition in dict.fromkeys(topic.partitions):
            described.partitions.append(_no_offset(partition, error))
            await self._budget.step()
        return described

    def _may_see(self, topic: str) -> bool:
        return self._ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


def _no_offset(partition: int, error: KafkaError | None) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition,
        start_offset=UNKNOWN,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


def _has_lag(summary: PartitionResult) -> bool:
    """Return whether the lag can be computed, after the first fetch and with a coordinator that supports KIP-1226."""
    return not summary.error_code and summary.start_offset != UNKNOWN and summary.delivery_complete_count != UNKNOWN


def _partition(summary: PartitionResult, end: EndOffset | None) -> DescribeShareGroupOffsetsResponsePartition:
    """Return the offsets of a partition; as in Kafka a partition whose state cannot be read has no start offset."""
    partition = DescribeShareGroupOffsetsResponsePartition(partition_index=summary.partition, start_offset=UNKNOWN)
    if isinstance(end, KafkaError):
        partition.start_offset = 0
        partition.error_code, partition.error_message = end.code, end.message
    elif not summary.error_code:
        partition.start_offset, partition.leader_epoch = summary.start_offset, summary.leader_epoch
        if end is not None:
            partition.lag = end - summary.start_offset - summary.delivery_complete_count
    return partition
