"""Requests about one share-partition, for tests."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from barnabas.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from barnabas.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from barnabas.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from barnabas.protocol.messages.write_share_group_state import WriteShareGroupStateRequest

Range = tuple[int, int, int, int]
"""First offset, last offset, delivery state, delivery count."""


def initialize_data(
    partition: int = 0, *, state_epoch: int = 0, start: int = 0
) -> initialize_share_group_state.PartitionData:
    return initialize_share_group_state.PartitionData(partition=partition, state_epoch=state_epoch, start_offset=start)


def write_data(
    *ranges: Range, partition: int = 0, state_epoch: int = 0, leader_epoch: int = 0, start: int = -1, count: int = -1
) -> write_share_group_state.PartitionData:
    return write_share_group_state.PartitionData(
        partition=partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start,
        delivery_complete_count=count,
        state_batches=[
            write_share_group_state.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=deliveries
            )
            for first, last, state, deliveries in ranges
        ],
    )


def read_data(partition: int = 0, *, leader_epoch: int = 0) -> read_share_group_state.PartitionData:
    return read_share_group_state.PartitionData(partition=partition, leader_epoch=leader_epoch)


def summary_data(partition: int = 0) -> read_share_group_state_summary.PartitionData:
    return read_share_group_state_summary.PartitionData(partition=partition, leader_epoch=0)


def delete_data(partition: int = 0) -> delete_share_group_state.PartitionData:
    return delete_share_group_state.PartitionData(partition=partition)


def initialize(
    group_id: str, topic_id: UUID, *data: initialize_share_group_state.PartitionData
) -> InitializeShareGroupStateRequest:
    topic = initialize_share_group_state.InitializeStateData(topic_id=topic_id, partitions=list(data))
    return InitializeShareGroupStateRequest(group_id=group_id, topics=[topic])


def write(group_id: str, topic_id: UUID, *data: write_share_group_state.PartitionData) -> WriteShareGroupStateRequest:
    topic = write_share_group_state.WriteStateData(topic_id=topic_id, partitions=list(data))
    return WriteShareGroupStateRequest(group_id=group_id, topics=[topic])


def read(group_id: str, topic_id: UUID, *data: read_share_group_state.PartitionData) -> ReadShareGroupStateRequest:
    topic = read_share_group_state.ReadStateData(topic_id=topic_id, partitions=list(data))
    return ReadShareGroupStateRequest(group_id=group_id, topics=[topic])


def summary(
    group_id: str, topic_id: UUID, *data: read_share_group_state_summary.PartitionData
) -> ReadShareGroupStateSummaryRequest:
    topic = read_share_group_state_summary.ReadStateSummaryData(topic_id=topic_id, partitions=list(data))
    return ReadShareGroupStateSummaryRequest(group_id=group_id, topics=[topic])


def delete(
    group_id: str, topic_id: UUID, *data: delete_share_group_state.PartitionData
) -> DeleteShareGroupStateRequest:
    topic = delete_share_group_state.DeleteStateData(topic_id=topic_id, partitions=list(data))
    return DeleteShareGroupStateRequest(group_id=group_id, topics=[topic])
