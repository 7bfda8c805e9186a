"""The pages of brokers and of reassignments, with three brokers of which one is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from barnabas.testing import Cluster
from barnabas.tools.console.brokers import BrokerPages
from barnabas.tools.console.cluster import ConnectionSettings, WatchedCluster

TIMEOUT = 60


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"orders": 3}) as running:
        yield running


@pytest.fixture
async def cluster(brokers: Cluster) -> AsyncIterator[WatchedCluster]:
    cluster = WatchedCluster(ConnectionSettings(brokers.bootstrap, {}, {}, {}))
    await cluster.start()
    yield cluster
    await cluster.close()


async def done(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_broker_has_its_settings_log_directories_and_features(page: httpx.AsyncClient) -> None:
    overview = await done(await page.get("/api/overview"))
    assert [(one["id"], one["is_live"]) for one in overview["brokers"]] == [(1, True), (2, True), (3, True)]
    for broker in (1, 2, 3):
        one = await done(await page.get(f"/api/brokers/{broker}"))
        assert one["address"] == overview["brokers"][broker - 1]["address"]
        assert one["is_controller"] == (overview["controller"] == broker)
        (disk,) = one["dirs"]
        assert disk["total"] > disk["free"] > 0 and disk["partitions"] >= 3
        assert ["orders", 0] in [found[1:] for found in disk["largest"]]
        configs = {
            one["name"]: one for one in (await done(await page.get(f"/api/brokers/{broker}/configs")))["configs"]
        }
        assert configs["broker.id"]["value"] == str(broker)
    change = {"key": "log.cleaner.threads", "value": "2"}
    await done(await page.post("/api/brokers/2/configs", json=change))
    configs = {one["name"]: one for one in (await done(await page.get("/api/brokers/2/configs")))["configs"]}
    assert (configs["log.cleaner.threads"]["value"], configs["log.cleaner.threads"]["source"]) == (
        "2",
        "dynamic broker",
    )
    await done(await page.post("/api/brokers/2/configs", json={**change, "value": None}))
    assert (await page.get("/api/brokers/9")).status_code == 400
    assert (await page.get("/api/brokers/9/configs")).status_code >= 400


async def test_partitions_move_as_in_the_preview_and_leaders_are_elected(
    brokers: Cluster, page: httpx.AsyncClient
) -> None:
    listed = await done(await page.get("/api/reassignments"))
    assert (listed["moving"], listed["brokers"]) == ([], [1, 2, 3])
    for body in (
        {},
        {"topics": ["orders"]},
        {"topics": ["orders"], "brokers": ["x"]},
        {"topics": ["orders"], "brokers": [7]},
        {"topics": ["orders"], "brokers": [1], "replication_factor": 2},
        {"topics": ["orders"], "brokers": [1], "replication_factor": -1},
    ):
        assert (await page.post("/api/reassignments/plan", json=body)).status_code == 400, body
    asked = {"topics": ["orders"], "brokers": [1, 2], "replication_factor": 2}
    plan = (await done(await page.post("/api/reassignments/plan", json=asked)))["rows"]
    assert all(len(before) == 3 and set(after) == {1, 2} for _, _, before, after in plan)
    for rows in (None, [["orders", 0, [1], [1, 1]]], [["orders", 0, [1], []]], [["orders", "x", [1], [2]]]):
        assert (await page.post("/api/reassignments", json={"rows": rows})).status_code == 400, rows
    changed = [[topic, partition, before[::-1], after] for topic, partition, before, after in plan]
    refused = await page.post("/api/reassignments", json={"rows": changed})
    assert refused.status_code == 400 and "has changed since the preview" in refused.text
    assert await done(await page.post("/api/reassignments", json={"rows": plan, "throttle": 10_000_000})) == {
        "moving": 3
    }

    async def settled() -> Any:
        while True:
            found = await done(await page.get("/api/reassignments"))
            if not found["moving"]:
                return found
            await asyncio.sleep(0.05)

    async with asyncio.timeout(TIMEOUT):
        found = await settled()
        await done(await page.post("/api/reassignments/unthrottle", json={}))
        topic = await done(await page.get("/api/topics/orders"))
        assert [set(row[3]) for row in topic["rows"]] == [{1, 2}] * 3
        assert (await page.post("/api/elections", json={"kind": "any"})).status_code == 400
        assert (await page.post("/api/elections", json={"kind": "unclean"})).status_code == 400
        while found["elections"]:
            elected = await done(await page.post("/api/elections", json={"kind": "preferred"}))
            assert elected["errors"] == []
            await asyncio.sleep(0.05)
            found = await settled()
    one = {"kind": "preferred", "topic": "orders", "partition": 0}
    assert await done(await page.post("/api/elections", json=one)) == {"elected": 0, "errors": []}
    assert await done(await page.post("/api/reassignments/cancel", json={})) == {"cancelled": 0}


async def test_a_broker_that_is_down_is_listed_and_its_partitions_are_found(
    brokers: Cluster, cluster: WatchedCluster, page: httpx.AsyncClient
) -> None:
    await done(await page.post("/api/topics", json={"name": "wide", "partitions": 3, "replication": 3}))
    assert (await done(await page.get("/api/overview")))["brokers"][2]["is_live"]
    await asyncio.to_thread(brokers.kill, 3)
    async with asyncio.timeout(TIMEOUT):
        while True:
            overview = await done(await page.get("/api/overview"))
            third = next(one for one in overview["brokers"] if one["id"] == 3)
            if not third["is_live"] and third["behind"] >= 3:
                break
            await asyncio.sleep(0.05)
    assert third["address"] and overview["under_replicated"] >= 3
    other = BrokerPages(cluster)  # a console that was started later
    assert next(one for one in (await other.overview())["brokers"] if one["id"] == 3)["is_live"] is False
    down = await done(await page.get("/api/brokers/3"))
    assert (down["is_live"], down["dirs"]) == (False, [])
    problems = await done(await page.get("/api/partitions", params={"problem": "under-replicated", "broker": 3}))
    assert problems["count"] == third["behind"]
    assert ["wide", 0] in [row[:2] for row in problems["rows"]]
    assert (await done(await page.get("/api/partitions", params={"problem": "offline"})))["count"] == 0
    assert (await page.get("/api/partitions", params={"problem": "sad"})).status_code == 400
    refused = await page.post("/api/reassignments/plan", json={"topics": ["wide"], "brokers": [3]})
    assert refused.status_code == 400 and "broker 3 is not live" in refused.text
