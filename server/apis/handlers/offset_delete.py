"""OffsetDelete (key 47): remove offsets of partitions that no member reads (KIP-496)."""

from __future__ import annotations

import asyncio

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ....protocol.topic_partition import TopicPartitionKey
from ...coordinator.group.classic_group import CONSUMER_PROTOCOL_TYPE
from ...coordinator.group.group import Group, GroupType, check_group_id
from ...coordinator.group.group_coordinator import GroupCoordinator
from ...coordinator.group.zookeeper_offsets import ZooKeeperOffsets
from ...metadata.metadata_cache import MetadataCache
from ...metadata.metadata_store import StoreError
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext

PARTITIONS_PER_TURN = 5000
"""Partitions whose committed offset is deleted."""


async def handle(
    ctx: RequestContext,
    request: OffsetDeleteRequest,
    *,
    group_coordinator: GroupCoordinator,
    metadata_cache: MetadataCache,
    zookeeper_offsets: ZooKeeperOffsets | None,
) -> OffsetDeleteResponse:
    """Delete the offset of each partition on its own. Respond when the deletion is durable."""
    check_group_id(request.group_id)
    response, budget = OffsetDeleteResponse(), CountBudget(PARTITIONS_PER_TURN)
    known: dict[TopicPartitionKey, OffsetDeleteResponsePartition] = {}
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            answer = OffsetDeleteResponsePartition(partition_index=partition.partition_index)
            if metadata_cache.has_partition(topic.name, partition.partition_index):
                known[topic.name, partition.partition_index] = answer
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(answer)
            await budget.step()
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    try:
        group = _group(group_coordinator, request.group_id)
    except KafkaError as error:
        # A group of version 0 alone has offsets in the metadata tree and is not a group of the coordinator.
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND and await _delete_in_tree(zookeeper_offsets, request, known):
            return response
        raise
    # Computed once: the topics of a group with many members are the union of their subscriptions.
    subscribed = frozenset[str]() if group.is_empty else group.subscribed_topics
    for (name, _), answer in known.items():
        if subscribed is None or name in subscribed:
            answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    deletable = {key: answer for key, answer in known.items() if not answer.error_code}
    committed, is_decided, outcomes = group.offsets.partitions, asyncio.Event(), list[ErrorCode]()

    def decided(outcome: ErrorCode) -> None:
        outcomes.append(outcome)
        is_decided.set()

    group_coordinator.delete_offsets(group, [key for key in deletable if key in committed], decided)
    await is_decided.wait()
    for answer in deletable.values():
        answer.error_code = outcomes[0]
    if outcomes[0] is ErrorCode.NONE:
        await _delete_in_tree(zookeeper_offsets, request, deletable)
    return response


async def _delete_in_tree(
    zookeeper_offsets: ZooKeeperOffsets | None,
    request: OffsetDeleteRequest,
    answers: dict[TopicPartitionKey, OffsetDeleteResponsePartition],
) -> bool:
    """Delete offsets of OffsetCommit 0, too; return whether any existed, or the store failed."""
    if zookeeper_offsets is None:
        return False
    try:
        return bool(await zookeeper_offsets.delete_offsets(request.group_id, list(answers)))
    except StoreError:
        for answer in answers.values():
            answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return True


def _group(group_coordinator: GroupCoordinator, group_id: str) -> Group:
    """Return a group with committed offsets.

    Raises KafkaError GROUP_ID_NOT_FOUND, also for a share group, which has no committed offsets; NON_EMPTY_GROUP if the
    subscriptions of the members are unknown.
    """
    group = group_coordinator.group_manager.find_group(group_id)
    if group is None or group.is_dead:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if group.type is GroupType.SHARE:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    is_classic = group.type is GroupType.CLASSIC
    if is_classic and not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} has members.")
    return group
