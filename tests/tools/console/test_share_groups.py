"""The console's pages of share groups: members, start offsets, lag, resets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.clients.share.share_brokers import bootstrap

from barnabas.clients import Admin, NewTopic, Producer, ShareConsumer, raise_first
from barnabas.clients.admin import ConfigChange, ConfigResource
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.tools.console.cluster import ConnectionSettings, WatchedCluster

__all__ = ["bootstrap"]

_numbers = itertools.count(1)


@pytest.fixture
async def cluster(bootstrap: str) -> AsyncIterator[WatchedCluster]:
    cluster = WatchedCluster(ConnectionSettings(bootstrap, {}, {}, {}))
    await cluster.start()
    yield cluster
    await cluster.close()


async def test_a_share_group_is_shown_and_reset(bootstrap: str, page: httpx.AsyncClient) -> None:
    topic = f"shown{next(_numbers)}"
    group = f"group-{topic}"
    async with Admin(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(topic, 1, 1)]))
        earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
        raise_first(await admin.alter_configs({ConfigResource(ConfigResourceType.GROUP, group): earliest}))
    async with Producer(bootstrap) as producer:
        await asyncio.gather(*[await producer.send(topic, b"x") for _ in range(10)])
    async with ShareConsumer(bootstrap, group, [topic], client_id="worker") as consumer, asyncio.timeout(60):
        await consumer.getone()
        shown = (await page.get(f"/api/groups/{group}/lag")).json()
        assert (shown["type"], shown["state"]) == ("share", "Stable")
        assert [(m["client"], m["partitions"]) for m in shown["members"]] == [("worker", 1)]
        refused = await page.post(f"/api/groups/{group}/reset", json={"kind": "latest"})
        assert refused.status_code == 409 and "not empty" in refused.text, refused.text
    async with asyncio.timeout(60):
        while (shown := (await page.get(f"/api/groups/{group}/lag")).json())["lag"] != 9:
            await asyncio.sleep(0.1)
    assert shown["columns"][2] == "start offset"
    listed = (await page.get("/api/groups")).json()["groups"]
    assert [one["type"] for one in listed if one["id"] == group] == ["share"]
    plan = await page.post(f"/api/groups/{group}/reset", json={"kind": "latest"})
    assert [row[3] for row in plan.json()["rows"]] == [10], plan.text
    reset = await page.post(f"/api/groups/{group}/offsets", json={"rows": plan.json()["rows"]})
    assert reset.status_code == 200, reset.text
    assert (await page.get(f"/api/groups/{group}/lag")).json()["lag"] == 0
    again = await page.post(f"/api/groups/{group}/offsets", json={"rows": plan.json()["rows"]})
    assert again.status_code == 400, "the start offset has changed since the preview"
