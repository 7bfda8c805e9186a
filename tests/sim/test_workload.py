"""What clients of a simulated world do, looked at by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from soak.sim.scenario import Plan, Run
from soak.sim.workload import TOPIC

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.loop import SimLoop, run

EARLY, LATE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class GrowingLogs:
    """A consumer of two partitions that have a record each when they are asked, and one of them ten soon after."""

    def __init__(self) -> None:
        self.at = {EARLY: 0, LATE: 0}
        self._answers = [(EARLY, 10), (LATE, 1)]

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def assign(self, partitions: list[TopicPartition]) -> None: ...

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(self.at, 1)

    async def position(self, partition: TopicPartition) -> int:
        return self.at[partition]

    async def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        partition, self.at[partition] = self._answers[0]
        _, count = self._answers.pop(0)
        return {
            partition: [SimpleNamespace(partition=partition[1], offset=one, value=b"%d" % one) for one in range(count)]
        }


def test_every_partition_is_read_to_its_end_though_others_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(loop: SimLoop) -> None:
        work = Run(loop, Plan.draw(1))
        monkeypatch.setattr(work, "_consumer", lambda number: GrowingLogs())
        await work._drain()
        assert work.history.final.keys() == {*((0, offset) for offset in range(10)), (1, 0)}

    run(main, 1)
