"""A follower that appends records of many partitions to a slow disk, while requests of clients wait for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.waiting import until

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication.replica_fetcher import ReplicaFetcher
from barnabas.server.runtime.write_queue import SECONDS_PER_TURN, WaitingAppend, WriteQueue

PARTITIONS = 6


async def test_the_partitions_of_a_fetch_take_turns_with_the_requests_of_clients() -> None:
    queue = WriteQueue(asyncio.get_running_loop())
    order: list[str] = []

    def write(name: str) -> None:
        order.append(name)
        queue.add_time(SECONDS_PER_TURN)

    def produce(number: int = 1) -> None:
        write("client")
        if number < PARTITIONS:
            queue.wait(WaitingAppend(lambda: produce(number + 1)))

    async def append(one: Any, _: Any) -> bool:
        write(one.name)
        return True

    async def flushed(partitions: list[Any]) -> None:
        assert len(partitions) == PARTITIONS

    log = SimpleNamespace(log_end_offset=0)
    names = [TopicPartition("t", index) for index in range(PARTITIONS)]
    state: Any = SimpleNamespace(
        _stopwatch=lambda: 0.0,
        _replica_manager=SimpleNamespace(write_queue=queue, wait_until_flushed=flushed),
        _followed={
            name: SimpleNamespace(name="follower", is_valid=True, leader_epoch=1, partition=SimpleNamespace(log=log))
            for name in names
        },
        _process_partition_data=append,
    )
    targets: Any = {name: SimpleNamespace(offset=0, leader_epoch=1) for name in names}
    data = [SimpleNamespace(partition_index=index, records=b"records") for index in range(PARTITIONS)]
    response: Any = SimpleNamespace(responses=[SimpleNamespace(topic="t", partitions=data)])
    write("earlier")
    queue.wait(WaitingAppend(produce))
    await ReplicaFetcher._process_fetch_response(state, response, targets)
    await until(lambda: not queue.must_wait)
    assert order == ["earlier", *["client", "follower"] * PARTITIONS]
