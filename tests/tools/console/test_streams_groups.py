"""The console's pages of streams groups: topology, members with tasks, lag, resets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.clients.streams.streams_application import StreamsApplication
from tests.clients.streams.streams_brokers import bootstrap

from barnabas.clients import Admin, NewTopic, Producer, raise_first
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.tools.console.cluster import ConnectionSettings, WatchedCluster

__all__ = ["bootstrap"]

_numbers = itertools.count(1)


@pytest.fixture
async def cluster(bootstrap: str) -> AsyncIterator[WatchedCluster]:
    cluster = WatchedCluster(ConnectionSettings(bootstrap, {}, {}, {}))
    await cluster.start()
    yield cluster
    await cluster.close()


async def test_a_streams_group_is_shown_and_reset(bootstrap: str, page: httpx.AsyncClient) -> None:
    topic = f"shown{next(_numbers)}"
    group = f"app-{topic}"
    repartition, changelog = f"{group}-words-repartition", f"{group}-counts-changelog"
    async with Admin(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(topic, 2, 1)]))
    async with Producer(bootstrap) as producer:
        await asyncio.gather(*[await producer.send(topic, b"x", partition=n % 2) for n in range(20)])
    application = StreamsApplication(bootstrap, group, topic)
    await asyncio.to_thread(application.__enter__)
    try:
        shown = (await page.get(f"/api/groups/{group}/lag")).json()
        refused = await page.post(f"/api/groups/{group}/reset", json={"kind": "latest"})
    finally:
        await asyncio.to_thread(application.__exit__)
    assert (shown["type"], shown["state"], shown["assignor"]) == ("streams", "Stable", "sticky")
    assert shown["topology"] == [
        {
            "id": "0",
            "source": [topic],
            "repartition_source": [],
            "repartition_sink": [repartition],
            "changelog": [],
        },
        {
            "id": "1",
            "source": [],
            "repartition_source": [repartition],
            "repartition_sink": [],
            "changelog": [changelog],
        },
    ]
    assert [one["process"] for one in shown["members"]] == ["process-0", "process-1"]
    assert sorted(name for one in shown["members"] for name in one["active"]["names"]) == ["0_0", "0_1", "1_0", "1_1"]
    assert sum(one["partitions"] for one in shown["members"]) == 4
    assert [row[:5] for row in shown["rows"] if row[0] == topic] == [[topic, p, None, 10, 10] for p in (0, 1)]
    assert refused.status_code == 409 and "current state is Stable" in refused.text, refused.text
    listed = (await page.get("/api/groups")).json()["groups"]
    assert [one["type"] for one in listed if one["id"] == group] == ["streams"]

    async with Admin(bootstrap) as admin:
        raise_first(await admin.alter_streams_group_offsets(group, {TopicPartition(topic, p): 4 for p in (0, 1)}))
    assert (await page.get(f"/api/groups/{group}/lag")).json()["lag"] == 12
    plan = await page.post(f"/api/groups/{group}/reset", json={"kind": "latest"})
    assert [row[3] for row in plan.json()["rows"]] == [10, 10], plan.text
    reset = await page.post(f"/api/groups/{group}/offsets", json={"rows": plan.json()["rows"]})
    assert reset.status_code == 200, reset.text
    assert (await page.get(f"/api/groups/{group}/lag")).json()["lag"] == 0
    wrong = await page.post(f"/api/groups/{group}/reset", json={"kind": "latest", "topic": repartition})
    assert wrong.status_code == 400 and "not an input topic" in wrong.text, wrong.text
    again = await page.post(f"/api/groups/{group}/offsets", json={"rows": plan.json()["rows"]})
    assert again.status_code == 400, "the committed offset has changed since the preview"
