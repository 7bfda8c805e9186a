"""The lag of all groups, partitions without a committed offset, the consumers of a topic, and deletions."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from barnabas import Broker
from barnabas.clients import Admin, Consumer
from barnabas.clients.admin import raise_first
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.tools.console import group_summaries
from barnabas.tools.console.group_summaries import GroupSummaries


async def done(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


async def commit(broker: Broker, group: str, offsets: dict[TopicPartition, int]) -> None:
    async with Admin(broker.bootstrap) as admin:
        raise_first(await admin.alter_group_offsets(group, offsets))


async def lags(page: httpx.AsyncClient) -> dict[str, Any]:
    found = await done(await page.get("/api/group-lags"))
    return {group: dict(zip(found["columns"], row, strict=True)) for group, row in found["groups"].items()}


async def test_the_total_includes_partitions_without_a_committed_offset(
    broker: Broker, page: httpx.AsyncClient
) -> None:
    broker.create_topic("wide", 8)
    for partition in range(8):
        broker.produce("wide", ["x"] * 100, partition=partition)
    await commit(broker, "partly", {TopicPartition("wide", 0): 40, TopicPartition("wide", 1): 100})
    async with Admin(broker.bootstrap) as admin:
        (moved,) = (await admin.delete_records({TopicPartition("wide", 7): 30})).values()
        assert moved == 30
    group = await done(await page.get("/api/groups/partly/lag"))
    assert (group["lag"], group["uncommitted"], group["uncommitted_lag"]) == (630, 6, 570)
    rows = {row[1]: row[2:5] for row in group["rows"]}
    assert rows == {
        0: [40, 100, 60],
        1: [100, 100, 0],
        7: [None, 100, 70],
        **{n: [None, 100, 100] for n in range(2, 7)},
    }
    summary = (await lags(page))["partly"]
    assert summary == {
        "members": 0,
        "topics": ["wide"],
        "topic count": 1,
        "lag": 630,
        "uncommitted": 6,
        "uncommitted lag": 570,
        "error": None,
    }
    found = await done(await page.get("/api/topics/wide/consumers"))
    (consumer,) = (dict(zip(found["columns"], row, strict=True)) for row in found["rows"])
    assert (consumer["group"], consumer["state"], consumer["members"]) == ("partly", "Empty", 0)
    assert (consumer["partitions"], consumer["lag"], consumer["uncommitted"]) == (8, 630, 6)
    broker.create_topic("unread", 1)
    assert (await done(await page.get("/api/topics/unread/consumers")))["rows"] == []


async def test_a_search_finds_a_group_by_each_of_its_topics(broker: Broker, page: httpx.AsyncClient) -> None:
    names = [f"many-{number}" for number in range(9)]
    for name in names:
        broker.create_topic(name, 1)
    await commit(broker, "of-many", {TopicPartition(name, 0): 0 for name in names})

    async def listed(**search: str) -> Any:
        found = await done(await page.get("/api/group-lags", params=search))
        return dict(zip(found["columns"], found["groups"]["of-many"], strict=True))["topics"]

    assert await listed() == names[:5]
    assert await listed(topic="MANY-8") == ["many-8", *names[:4]]


async def test_a_partition_without_a_leader_is_in_the_list_and_not_in_the_sum(
    broker: Broker, page: httpx.AsyncClient
) -> None:
    broker.create_topic("halved", 2)
    for partition in range(2):
        broker.produce("halved", ["x"] * 5, partition=partition)
    await commit(broker, "of-half", {TopicPartition("halved", 0): 2})

    def without_leader(request: Any, response: Any) -> Any:
        for topic in response.topics:
            if topic.name == "halved":
                gone = topic.partitions[1]
                gone.leader_id, gone.error_code = -1, ErrorCode.LEADER_NOT_AVAILABLE
        return response

    with broker.faults.change("Metadata", without_leader):
        group = await done(await page.get("/api/groups/of-half/lag"))
    assert [row[1:5] for row in group["rows"]] == [[0, 2, 5, 3], [1, None, None, None]]
    assert (group["lag"], group["uncommitted"], group["uncommitted_lag"]) == (3, 1, 0)


async def test_a_group_that_cannot_be_read_hides_no_other(broker: Broker, cluster: Any, monkeypatch: Any) -> None:
    broker.create_topic("several", 1)
    for number in range(5):
        await commit(broker, f"several-{number}", {TopicPartition("several", 0): 0})
    broker.produce("several", ["x"] * 3)
    group_lag = cluster.admin.group_lag

    async def refusing(ids: list[str]) -> Any:
        if "several-2" in ids:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "deleted in between")
        return await group_lag(ids)

    monkeypatch.setattr(cluster.admin, "group_lag", refusing)
    found = await GroupSummaries(cluster).get()
    assert found["several-2"].error == "GROUP_ID_NOT_FOUND: deleted in between"
    for number in (0, 1, 3, 4):
        assert found[f"several-{number}"].topics["several"].lag == 3


async def test_an_unavailable_coordinator_costs_its_groups_alone(
    broker: Broker, cluster: Any, monkeypatch: Any
) -> None:
    broker.create_topic("reached", 1)
    for number in range(5):
        await commit(broker, f"reached-{number}", {TopicPartition("reached", 0): 0})
    broker.produce("reached", ["x"] * 3)

    def unavailable(request: Any, response: Any) -> Any:
        for one in response.coordinators:
            if one.key == "reached-2":
                one.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return response

    monkeypatch.setattr(group_summaries, "COORDINATOR_TIMEOUT_MS", 200)
    with broker.faults.change("FindCoordinator", unavailable):
        async with asyncio.timeout(30):
            found = await GroupSummaries(cluster).get()
    assert "COORDINATOR_NOT_AVAILABLE" in (found["reached-2"].error or "")
    for number in (0, 1, 3, 4):
        assert found[f"reached-{number}"].topics["reached"].lag == 3


async def test_offsets_members_and_groups_are_deleted(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("kept", 2)
    broker.create_topic("dropped", 2)
    await commit(broker, "old", {TopicPartition(topic, 0): 0 for topic in ("kept", "dropped")})
    for body in ({}, {"topic": 7}, {"topic": "other"}):
        assert (await page.post("/api/groups/old/offsets/delete", json=body)).status_code == 400
    await done(await page.post("/api/groups/old/offsets/delete", json={"topic": "dropped"}))
    group = await done(await page.get("/api/groups/old/lag"))
    assert {row[0] for row in group["rows"]} == {"kept"}
    assert (await lags(page))["old"]["topics"] == ["kept"], "the summary is read again after a change"

    assert (await page.post("/api/groups/old/delete", json={"confirm": "ol"})).status_code == 400
    async with Consumer(broker.bootstrap, group_id="old", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["kept"])
        async with asyncio.timeout(60):
            while not consumer.assignment:
                await consumer.getmany(timeout_ms=100)
            while (await lags(page))["old"]["members"] != 1:  # the summary may be a second old
                await asyncio.sleep(0.05)
        refused = await page.post("/api/groups/old/delete", json={"confirm": "old"})
        assert refused.status_code == 409 and "NON_EMPTY_GROUP" in refused.text
        refused = await page.post("/api/groups/old/offsets/delete", json={"topic": "kept"})
        assert refused.status_code == 409 and "GROUP_SUBSCRIBED_TO_TOPIC" in refused.text
        refused = await page.post("/api/groups/old/members/remove", json={"instance": "nobody"})
        assert refused.status_code == 409 and "UNKNOWN_MEMBER_ID" in refused.text
        assert (await page.post("/api/groups/old/members/remove", json={"instance": 7})).status_code == 400
        assert await done(await page.post("/api/groups/old/members/remove", json={})) == {"removed": 1}
    async with asyncio.timeout(60):
        while (await done(await page.get("/api/groups/old/lag")))["members"]:
            await asyncio.sleep(0.05)
    await done(await page.post("/api/groups/old/delete", json={"confirm": "old"}))
    assert (await page.get("/api/groups/old/lag")).status_code == 404
    assert (await page.post("/api/groups/old/delete", json={"confirm": "old"})).status_code == 404
