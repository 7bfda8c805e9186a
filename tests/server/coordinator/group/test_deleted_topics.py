"""Offsets of topics that are gone go in turns, a piece of a group in each, and never what was committed later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

from barnabas.protocol.topic_partition import TopicPartitionKey
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.coordinator.group.group_metadata_manager import GroupMetadataManager
from barnabas.server.coordinator.group.offset_metadata_manager import TOMBSTONES_PER_BATCH, OffsetMetadataManager
from barnabas.server.coordinator.group.offsets import CommittedOffset, GroupOffsets
from barnabas.server.runtime.loop_sharing import SLICE_SECONDS, SlicedWork
from barnabas.simulation.loop import SimLoop, run

OFFSET = CommittedOffset(1, 0, "", 0)


class Groups:
    """Groups whose offsets are kept in memory alone. Each turn of long work is one step of it."""

    def __init__(self, loop: SimLoop) -> None:
        clock = count()
        self.groups: dict[str, Any] = {}
        self.written: list[tuple[str, list[TopicPartitionKey]]] = []
        self.before_each: Callable[[], None] = lambda: None
        group_manager = cast("GroupMetadataManager", SimpleNamespace(find_group=self.groups.get))
        sliced_work = SlicedWork(loop, lambda: next(clock) * SLICE_SECONDS * 0.6)
        self.removed = OffsetMetadataManager(cast("BrokerConfig", None), group_manager, sliced_work)
        self.removed.delete_offsets = self._remove  # type: ignore[method-assign]

    def add(self, group_id: str, *partitions: TopicPartitionKey) -> None:
        offsets = GroupOffsets(dict.fromkeys(partitions, OFFSET))
        self.groups[group_id] = SimpleNamespace(group_id=group_id, is_dead=False, offsets=offsets)

    def _remove(self, group: Any, partitions: Iterable[TopicPartitionKey], reply: object) -> None:
        self.before_each()
        gone = list(partitions)
        self.written.append((group.group_id, gone))
        group.offsets.remove(gone)

    def begin(self, *topics: str) -> None:
        self.removed.on_topics_deleted(topics, self.groups)

    def left(self) -> dict[str, list[TopicPartitionKey]]:
        return {name: sorted(group.offsets.committed) for name, group in self.groups.items()}

    async def turns(self, most: int) -> None:
        for _ in range(most):
            await asyncio.sleep(0)


def play(talk: Callable[[Groups], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        await talk(Groups(loop))

    run(main, seed=3)


def test_one_group_is_looked_through_in_a_step_and_not_much_of_it_written() -> None:
    async def talk(groups: Groups) -> None:
        for number in range(10):
            groups.add(f"g{number}", ("gone", 0), ("stays", number))
        groups.add("large", *(("gone", number) for number in range(3 * TOMBSTONES_PER_BATCH)), ("stays", 0))
        groups.begin("gone")
        steps = []
        for _ in range(20):
            before = len(groups.written)
            await groups.turns(1)
            steps.append(groups.written[before:])
        assert all(len(step) <= 1 for step in steps)
        assert max(len(partitions) for _, partitions in groups.written) == TOMBSTONES_PER_BATCH
        assert groups.left() == {**{f"g{n}": [("stays", n)] for n in range(10)}, "large": [("stays", 0)]}

    play(talk)


def test_long_names_are_written_with_fewer_others() -> None:
    async def talk(groups: Groups) -> None:
        name = "x" * 30_000
        groups.add(name, *(("gone", number) for number in range(100)))
        groups.begin("gone")
        await groups.turns(200)
        assert sum(len(partitions) for _, partitions in groups.written) == 100
        assert max(len(name) * len(partitions) for _, partitions in groups.written) < 1_000_000

    play(talk)


def test_what_a_group_commits_from_then_on_stays() -> None:
    partitions = [("gone", number) for number in range(2 * TOMBSTONES_PER_BATCH)]

    async def talk(groups: Groups) -> None:
        for name in ("waits", "begun"):
            groups.add(name, *partitions)
        groups.begin("gone")
        assert [name for name, _ in groups.written] == ["begun"], "not all of it yet"
        for name in ("waits", "begun"):
            groups.removed.finish_topic_deletion(name)
            assert groups.left()[name] == []
            groups.groups[name].offsets.commit({("gone", 0): OFFSET})
        await groups.turns(20)
        assert groups.left() == {"waits": [("gone", 0)], "begun": [("gone", 0)]}

    play(talk)


def test_a_group_that_commits_while_its_offsets_are_written_has_the_rest_removed_first() -> None:
    """An append may answer somebody whose next request is handled at once."""

    async def talk(groups: Groups) -> None:
        groups.add("g", *(("gone", number) for number in range(2 * TOMBSTONES_PER_BATCH)))

        def commit() -> None:
            groups.before_each = lambda: None
            groups.removed.finish_topic_deletion("g")
            groups.groups["g"].offsets.commit({("new", 0): OFFSET})

        groups.before_each = commit
        groups.begin("gone")
        await groups.turns(20)
        assert groups.left() == {"g": [("new", 0)]}
        assert len(groups.written) == 2

    play(talk)


def test_groups_that_are_gone_are_left_alone_and_more_topics_may_go_meanwhile() -> None:
    async def talk(groups: Groups) -> None:
        for name in "abcd":
            groups.add(name, ("one", 0), ("two", 0), ("three", 0))
        groups.begin("one")
        dead, deleted, *others = groups.groups
        groups.groups[dead].is_dead = True
        del groups.groups[deleted]
        groups.begin("two")
        await groups.turns(20)
        assert groups.left() == {
            dead: [("one", 0), ("three", 0), ("two", 0)],
            **{name: [("three", 0)] for name in others},
        }
        groups.begin("three")
        await groups.turns(20)
        assert [groups.left()[name] for name in others] == [[], []]

    play(talk)
