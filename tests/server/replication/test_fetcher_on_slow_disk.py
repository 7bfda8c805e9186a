"""A follower that appends records of many partitions to a slow disk, while requests of clients wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.waiting import until

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication.replica_fetcher import ReplicaFetcher
from barnabas.server.runtime.write_queue import SECONDS_PER_TURN, WaitingAppend, WriteQueue

PARTITIONS = 6


class Follower:
    """A fetcher with a response for several partitions, which are appended by a function."""

    def __init__(self, queue: WriteQueue, append: Callable[[], None]) -> None:
        log = SimpleNamespace(log_end_offset=0)
        names = [TopicPartition("t", index) for index in range(PARTITIONS)]

        async def append_partition(*_: Any) -> bool:
            append()
            return True

        async def flushed(partitions: list[Any]) -> None:
            assert len(partitions) == PARTITIONS

        self._state: Any = SimpleNamespace(
            _stopwatch=lambda: 0.0,
            _replica_manager=SimpleNamespace(write_queue=queue, wait_until_flushed=flushed),
            _followed={
                name: SimpleNamespace(is_valid=True, leader_epoch=1, partition=SimpleNamespace(log=log))
                for name in names
            },
            _process_partition_data=append_partition,
        )
        self._targets: Any = {name: SimpleNamespace(offset=0, leader_epoch=1) for name in names}
        data = [SimpleNamespace(partition_index=index, records=b"records") for index in range(PARTITIONS)]
        self._response: Any = SimpleNamespace(responses=[SimpleNamespace(topic="t", partitions=data)])

    async def append_all(self) -> None:
        await ReplicaFetcher._process_fetch_response(self._state, self._response, self._targets)


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

    write("earlier")
    queue.wait(WaitingAppend(produce))
    await Follower(queue, lambda: write("follower")).append_all()
    await until(lambda: not queue.must_wait)
    assert order == ["earlier", *["client", "follower"] * PARTITIONS]


async def test_a_follower_waits_once_if_its_appends_are_fast() -> None:
    queue = WriteQueue(asyncio.get_running_loop())
    order: list[str] = []
    queue.add_time(SECONDS_PER_TURN)
    queue.wait(WaitingAppend(lambda: order.append("earlier client")))
    task = asyncio.create_task(Follower(queue, lambda: order.append("follower")).append_all())
    await asyncio.sleep(0)
    assert len(queue) == 2
    queue.wait(WaitingAppend(lambda: order.append("later client")))
    await task
    await until(lambda: not queue.must_wait)
    assert order == ["earlier client", *["follower"] * PARTITIONS, "later client"]
