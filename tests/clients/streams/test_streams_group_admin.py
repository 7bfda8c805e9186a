"""`Admin` and streams groups: descriptions, offsets, lag, deletion; and lag of groups of all types."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from tests.clients.streams.streams_application import StreamsApplication
from tests.clients.streams.streams_brokers import bootstrap

from barnabas import Broker
from barnabas.clients import Admin, NewTopic, Producer, ShareConsumer, raise_first
from barnabas.clients.admin import (
    ConfigChange,
    ConfigResource,
    GroupListing,
    ShareGroupDescription,
    StreamsGroupDescription,
    StreamsTask,
    TopologyDescriptionStatus,
    TopologyNode,
    TopologyNodeType,
)
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.streams_group_describe import (
    DescribedGroup,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["bootstrap"]

RECORDS = 10
_numbers = itertools.count(1)


@pytest.fixture
async def topic(bootstrap: str) -> str:
    """A topic of two partitions with ten records each."""
    name = f"lines{next(_numbers)}"
    async with Admin(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(name, 2, 1)]))
    async with Producer(bootstrap) as producer:
        await asyncio.gather(*[await producer.send(name, b"x", partition=n % 2) for n in range(2 * RECORDS)])
    return name


async def described(admin: Admin, group: str) -> StreamsGroupDescription:
    found = (await admin.describe_streams_groups([group], include_topology_description=True))[group]
    assert isinstance(found, StreamsGroupDescription), found
    return found


async def test_a_description_has_state_topology_and_tasks(bootstrap: str, topic: str) -> None:
    group = f"app-{topic}"
    repartition, changelog = f"{group}-words-repartition", f"{group}-counts-changelog"
    async with Admin(bootstrap) as admin:
        application = StreamsApplication(bootstrap, group, topic)
        await asyncio.to_thread(application.__enter__)
        try:
            assert GroupListing(group, "streams", "Stable", "streams") in await admin.list_groups(types=["streams"])
            found = await described(admin, group)
            lags = await admin.group_lag([group])
            refused = (await admin.delete_streams_groups([group]))[group]
            kept = await admin.delete_streams_group_offsets(group, [TopicPartition(topic, 0)])
            with_members = await admin.alter_streams_group_offsets(group, {TopicPartition(topic, 0): 1})
        finally:
            await asyncio.to_thread(application.__exit__)
        assert (found.state, found.assignor, found.topology_epoch) == ("Stable", "sticky", 0)
        assert found.group_epoch == found.target_assignment_epoch > 0
        assert (found.input_topics(), found.internal_topics()) == ([topic], [changelog, repartition])
        first, second = found.subtopologies
        assert (first.subtopology_id, first.source_topics, first.repartition_sink_topics) == (
            "0",
            (topic,),
            (repartition,),
        )
        assert [(t.name, t.partitions) for t in second.repartition_source_topics] == [(repartition, 2)]
        assert [(t.name, t.partitions) for t in second.state_changelog_topics] == [(changelog, 2)]
        active = sorted(task for member in found.members for task in member.assignment.active)
        assert active == [StreamsTask("0", 0), StreamsTask("0", 1), StreamsTask("1", 0), StreamsTask("1", 1)]
        # The one subtopology with state has a standby task for each of its two tasks.
        standby = sorted(task for member in found.members for task in member.target_assignment.standby)
        assert standby == [StreamsTask("1", 0), StreamsTask("1", 1)]
        assert [(m.member_id, m.process_id, m.user_endpoint) for m in found.members] == [
            (f"{group}-thread-{n}", f"process-{n}", f"app:{9000 + n}") for n in range(2)
        ]
        assert (found.topology_description, found.topology_description_status) == (
            None,
            TopologyDescriptionStatus.NOT_STORED,
        )
        places = [TopicPartition(name, p) for name in (repartition, topic) for p in (0, 1)]
        assert [(lag.type, lag.partition) for lag in lags] == [("streams", tp) for tp in sorted(places)]
        owners = found.owners()
        assert all(lag.members == {owners[lag.partition].member_id} and lag.committed is None for lag in lags)
        assert refused is not None and refused.code is ErrorCode.NON_EMPTY_GROUP
        (outcome,) = kept.values()
        assert outcome is not None and outcome.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        (outcome,) = with_members.values()
        assert outcome is not None and outcome.code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_offsets_are_set_and_deleted_without_members(bootstrap: str, topic: str) -> None:
    group = f"app-{topic}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Admin(bootstrap) as admin:
        application = StreamsApplication(bootstrap, group, topic, members=1)
        await asyncio.to_thread(application.__enter__)
        await asyncio.to_thread(application.__exit__)
        assert (await described(admin, group)).state == "Empty"
        raise_first(await admin.alter_streams_group_offsets(group, {first: 4, second: RECORDS}))
        offsets = (await admin.list_streams_group_offsets([group]))[group]
        assert not isinstance(offsets, KafkaError)
        assert {tp: at.offset for tp, at in offsets.items()} == {first: 4, second: RECORDS}
        assert [(lag.partition, lag.lag, lag.members) for lag in await admin.group_lag([group])] == [
            (first, 6, frozenset()),
            (second, 0, frozenset()),
        ]
        raise_first(await admin.delete_streams_group_offsets(group, [second]))
        assert (await admin.list_streams_group_offsets([group], [first, second]))[group] == {first: offsets[first]}
        assert await admin.delete_streams_groups([group]) == {group: None}
        missing = (await admin.describe_streams_groups([group]))[group]
        assert isinstance(missing, KafkaError) and missing.code is ErrorCode.GROUP_ID_NOT_FOUND
        again = (await admin.delete_streams_groups([group]))[group]
        assert again is not None and again.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_of_another_type_is_not_deleted(bootstrap: str, topic: str) -> None:
    group = f"classic-{topic}"
    async with Admin(bootstrap) as admin:
        raise_first(await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 4}))
        outcome = (await admin.delete_streams_groups([group]))[group]
        assert outcome is not None and outcome.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert await admin.list_group_offsets([group]) != {group: {}}


async def test_lag_of_a_share_group_is_that_of_its_coordinator(bootstrap: str, topic: str) -> None:
    group = f"share-{topic}"
    async with Admin(bootstrap) as admin:
        earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
        raise_first(await admin.alter_configs({ConfigResource(ConfigResourceType.GROUP, group): earliest}))
        async with ShareConsumer(bootstrap, group, [topic], client_id="worker") as consumer, asyncio.timeout(60):
            read = 0
            while read < 2 * RECORDS:
                read += sum(map(len, (await consumer.getmany()).values()))
            found = (await admin.describe_share_groups([group]))[group]
            assert isinstance(found, ShareGroupDescription)
            (member,) = found.members
            raise_first(await consumer.commit())
            # The coordinator reports the lag of the last state that a share partition has stored.
            while [lag.lag for lag in await admin.group_lag([group])] != [0, 0]:
                await asyncio.sleep(0.1)
            lags = [lag for lag in await admin.group_lag() if lag.group_id == group]
        assert [(lag.type, lag.partition, lag.end, lag.member_id, lag.members) for lag in lags] == [
            ("share", TopicPartition(topic, p), RECORDS, None, {member.member_id}) for p in (0, 1)
        ]
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            await admin.group_lag(["nobody"])


@pytest.mark.parametrize("node_type", [3, 4])
async def test_a_topology_description_of_a_plug_in_is_returned(node_type: int) -> None:
    def node(name: str, kind: int, **fields: Any) -> TopologyDescriptionNode:
        return TopologyDescriptionNode(name=name, node_type=kind, **fields)

    def add_description(_: object, response: Any) -> Any:
        source = node("KSTREAM-SOURCE-0", 1, source_topics=["lines"], successors=["KSTREAM-SINK-1"])
        nodes = [source, node("KSTREAM-SINK-1", node_type, sink_topic="counts")]
        described = DescribedGroup(group_id="app", group_state="Stable", topology_description_status=3)
        described.topology_description = TopologyDescription(
            subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=nodes)],
            global_stores=[TopologyDescriptionGlobalStore(source=source, processor=node("P", 2, stores=["s"]))],
        )
        response.groups = [described]
        return response

    async with Broker() as broker, Admin(broker.bootstrap) as admin:
        with broker.faults.change("StreamsGroupDescribe", add_description) as fault:
            found = (await admin.describe_streams_groups(["app"], include_topology_description=True))["app"]
        assert [request.request.include_topology_description for request in fault.requests] == [True]
    if node_type == 4:
        assert isinstance(found, KafkaError) and "invalid topology description" in found.message
        return
    assert isinstance(found, StreamsGroupDescription) and found.topology_description is not None
    assert found.topology_description_status is TopologyDescriptionStatus.AVAILABLE
    source = TopologyNode("KSTREAM-SOURCE-0", TopologyNodeType.SOURCE, ("lines",), None, (), ("KSTREAM-SINK-1",))
    sink = TopologyNode("KSTREAM-SINK-1", TopologyNodeType.SINK, (), "counts", (), ())
    processor = TopologyNode("P", TopologyNodeType.PROCESSOR, (), None, ("s",), ())
    assert found.topology_description.subtopologies == {"0": (source, sink)}
    assert found.topology_description.global_stores == ((source, processor),)
