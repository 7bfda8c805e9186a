"""`__share_group_state` goes back and forth between Apache Kafka and the broker: the same states, and both go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaServer
from tests.server.coordinator.share.share_requests import (
    delete,
    delete_data,
    initialize,
    initialize_data,
    read,
    read_data,
    summary,
    summary_data,
    write,
    write_data,
)
from tests.server_process import wait_until

from barnabas.clients import Admin, NewTopic
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.server.coordinator.share.share_partition_key import SharePartitionKey
from barnabas.server.metadata.topic_names import SHARE_GROUP_STATE_TOPIC

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(280)]

STATE_PARTITIONS = 3
EARLIEST = -2
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "4",
    "share.coordinator.state.topic.prune.interval.ms": "2000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "3000",
}
GROUPS = ("g", "grüppe:2")
PARTITIONS = 4
PATIENCE_S = 90
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
States = dict[tuple[str, int], tuple[Any, ...]]


class Leader:
    """Sends requests as the leader of all partitions of a topic would."""

    def __init__(self, connection: BrokerConnection, topic_id: UUID) -> None:
        self._connection = connection
        self.topic_id = topic_id

    async def ask(self, group_id: str, index: int, request: Any, version: int = 0) -> Any:
        """The only partition of the response, once its coordinator has loaded it."""
        key = SharePartitionKey(group_id, self.topic_id, index).coordinator_key
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (found,) = (
                await self._connection.send(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
            ).coordinators
            if found.error_code == ErrorCode.NONE:
                ((partition,),) = (
                    topic.partitions for topic in (await self._connection.send(request, version)).results
                )
                if partition.error_code not in RETRIED:
                    return partition
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.2)

    async def is_pruned(self) -> bool:
        """Whether redundant records were deleted from all partitions of the log."""
        partitions = [
            ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=EARLIEST)
            for index in range(STATE_PARTITIONS)
        ]
        topic = ListOffsetsTopic(name=SHARE_GROUP_STATE_TOPIC, partitions=partitions)
        response = await self._connection.send(ListOffsetsRequest(replica_id=-1, topics=[topic]), 4)
        return all(one.offset > 0 for topic in response.topics for one in topic.partitions)

    async def states(self, *, leader_epoch: int) -> States:
        """All states, by group and partition."""
        found = {}
        for group_id in GROUPS:
            for index in range(PARTITIONS):
                wanted = read(group_id, self.topic_id, read_data(index, leader_epoch=leader_epoch))
                state = await self.ask(group_id, index, wanted)
                rest = await self.ask(group_id, index, summary(group_id, self.topic_id, summary_data(index)), 1)
                batches = [
                    (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
                    for one in state.state_batches
                ]
                found[group_id, index] = (
                    *(state.error_code, state.state_epoch, state.start_offset, batches),
                    *(rest.error_code, rest.delivery_complete_count, rest.leader_epoch),
                )
        return found

    async def write_all(self, turn: int) -> None:
        """Ten writes of each share-partition, so that there are snapshots and updates; the last one is deleted."""
        for group_id in GROUPS:
            for index in range(PARTITIONS):
                begin = initialize(group_id, self.topic_id, initialize_data(index, state_epoch=turn, start=10 * turn))
                assert (await self.ask(group_id, index, begin)).error_code == ErrorCode.NONE
                for number in range(10 - index):
                    first = 10 * turn + 3 * number
                    data = write_data(
                        (first, first + 1, 2, 1),
                        (first + 1, first + 2, 0, 2),
                        partition=index,
                        state_epoch=turn,
                        leader_epoch=1000,
                        start=10 * turn + number,
                        count=number,
                    )
                    result = await self.ask(group_id, index, write(group_id, self.topic_id, data), 1)
                    assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code)
            gone = delete(group_id, self.topic_id, delete_data(PARTITIONS - 1))
            assert (await self.ask(group_id, PARTITIONS - 1, gone)).error_code == ErrorCode.NONE


def lead(bootstrap: str, work: Callable[[Leader], Coroutine[Any, Any, Any]]) -> Any:
    """Do some work as the leader, and return its result."""

    async def main() -> Any:
        host, _, port = bootstrap.rpartition(":")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection = await BrokerConnection.open(host, int(port), ConnectionOptions("leader", 60_000, 60_000))
                (topic,) = (await connection.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)).topics
                if topic.error_code == ErrorCode.NONE:
                    break
                connection.close()
            except KafkaError:
                pass
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
        try:
            return await work(Leader(connection, topic.topic_id))
        finally:
            connection.close()

    return asyncio.run(main())


async def create(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS)])


def states(bootstrap: str, leader_epoch: int) -> States:
    found: States = lead(bootstrap, lambda leader: leader.states(leader_epoch=leader_epoch))
    return found


def test_kafkas_folder_and_back(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka", version="4.4.0", heap="512m", properties=SETTINGS) as kafka:
        asyncio.run(create(kafka.bootstrap))
        lead(kafka.bootstrap, lambda leader: leader.write_all(1))
        before = states(kafka.bootstrap, 1)
        assert [one[0] for one in before.values()] == [*[0] * (PARTITIONS - 1), ErrorCode.INVALID_REQUEST] * len(GROUPS)
        kafka.stop()
        ours = BarnabasServer(tmp_path / "ours", settings=kafka.folder / "server.properties", port=kafka.port)
        with ours:
            assert states(ours.bootstrap, 1) == before
            lead(ours.bootstrap, lambda leader: leader.write_all(2))
            wait_until(
                lambda: lead(ours.bootstrap, Leader.is_pruned),
                timeout_s=PATIENCE_S,
                what="there are snapshots of all share-partitions, and the records before them are deleted",
            )
            after = states(ours.bootstrap, 2)
            assert after != before
            ours.stop()
        kafka.start()
        assert states(kafka.bootstrap, 2) == after
        lead(kafka.bootstrap, lambda leader: leader.write_all(3))
        last = states(kafka.bootstrap, 3)
        kafka.stop()
        with BarnabasServer(tmp_path / "again", settings=kafka.folder / "server.properties", port=kafka.port) as again:
            assert states(again.bootstrap, 3) == last
