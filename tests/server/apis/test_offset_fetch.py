"""OffsetFetch of all that a group has committed, of which there may be very much."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.server.apis.handlers import offset_fetch
from barnabas.server.apis.handlers.offset_fetch import PARTITIONS_PER_GROUP, PARTITIONS_PER_TURN
from barnabas.server.coordinator.group.offsets import CommittedOffset, GroupOffsets

TOPICS, PARTITIONS = 2000, 20_000


@pytest.mark.parametrize("version", [7, 8])
async def test_all_of_a_group_is_looked_through_in_turns_while_it_changes(version: int) -> None:
    places = [(f"t{number % TOPICS:04d}", number // TOPICS) for number in range(PARTITIONS)]
    offsets = GroupOffsets({place: CommittedOffset(7, 0, "", 0) for place in reversed(places)})
    group = SimpleNamespace(offsets=offsets, validate_offset_fetch=lambda member_id, epoch: ErrorCode.NONE)
    asked: list[str] = []

    def may(operation: object, resource_type: object, name: str) -> bool:
        asked.append(name)
        return name != "t0001"

    context: Any = SimpleNamespace(api_version=version, is_authorized=may)
    parts: Any = {
        "group_coordinator": SimpleNamespace(group_manager=SimpleNamespace(find_group=lambda _: group)),
        "zookeeper_offsets": None,
    }
    parts["metadata_cache"] = SimpleNamespace(topic_id=lambda name: None)
    request = OffsetFetchRequest(group_id="g", topics=None, groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    task = asyncio.get_running_loop().create_task(offset_fetch.handle(context, request, **parts))
    await asyncio.sleep(0)
    assert not task.done()
    offsets.commit({("new", 0): CommittedOffset(7, 0, "", 0)})
    offsets.remove([("t0000", 0)])
    while not task.done():
        before = len(asked)
        await asyncio.sleep(0)
        assert len(asked) - before <= 2 * PARTITIONS_PER_TURN // PARTITIONS_PER_GROUP
    response = await task
    topics = response.topics if version < 8 else response.groups[0].topics
    assert [topic.name for topic in topics] == [f"t{number:04d}" for number in range(TOPICS) if number != 1]
    told = {(topic.name, one.partition_index): one.committed_offset for topic in topics for one in topic.partitions}
    assert told == {place: -1 if place == ("t0000", 0) else 7 for place in places if place[0] != "t0001"}
    assert [one.partition_index for one in topics[1].partitions] == list(range(PARTITIONS // TOPICS))
