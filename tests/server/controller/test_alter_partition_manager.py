"""Requests for changes of the ISR to the controller."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import AlterPartitionResponse, ResponsePartitionData, ResponseTopicData
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.alter_partition_manager import DefaultAlterPartitionManager
from barnabas.server.kraft.kraft_member import INTER_BROKER_PROTOCOL
from barnabas.server.replication.leader_and_isr import IsrChange


async def test_an_unexpected_error_does_not_end_the_changes_of_the_isr() -> None:
    errors: list[Exception] = [ValueError("no such certificate")]

    async def send_request(request: Any, *, lowest: int = 0, highest: int = 99) -> Any:
        if errors:
            raise errors.pop()
        (topic,) = request.topics
        (one,) = topic.partitions
        done = ResponsePartitionData(
            partition_index=one.partition_index, leader_id=1, leader_epoch=3, isr=[1], partition_epoch=5
        )
        return AlterPartitionResponse(topics=[ResponseTopicData(topic_id=topic.topic_id, partitions=[done])])

    manager = DefaultAlterPartitionManager(1, lambda: 7, send_request, INTER_BROKER_PROTOCOL)
    change = IsrChange(TopicPartition("t", 0), 3, 4, (1,), (7,), topic_id=UUID(int=9))
    with pytest.raises(KafkaError) as error:
        await manager.submit(change)
    assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await manager.submit(change)).partition_epoch == 5
    await manager.close()
