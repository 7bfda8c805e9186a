"""The console in front of Apache Kafka: it knows nothing of our broker that it could not do without."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from tests.kafka import NEWEST, KafkaServer

from barnabas.clients import Consumer
from barnabas.tools.console.cluster import ConnectionSettings, WatchedCluster

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka"), version=NEWEST, heap="400m") as server:
        yield server


@pytest.fixture
async def cluster(kafka: KafkaServer) -> AsyncIterator[WatchedCluster]:
    cluster = WatchedCluster(ConnectionSettings(kafka.bootstrap, {}, {}, {}))
    await cluster.start()
    yield cluster
    await cluster.close()


async def test_every_screen_of_apache_kafka(kafka: KafkaServer, page: httpx.AsyncClient) -> None:
    made = await page.post("/api/topics", json={"name": "t", "partitions": 2, "configs": {"retention.ms": "100000"}})
    assert made.status_code == 200, made.text
    bodies = [{"key": {"text": f"k{i}"}, "value": {"text": json.dumps({"n": i})}} for i in range(20)]
    sent = [await page.post("/api/topics/t/records", json=body) for body in bodies]
    assert {answer.status_code for answer in sent} == {200}, sent[0].text
    rows = (await page.get("/api/topics/t/records", params={"path": "$.n = 7"})).text
    assert '"k7"' in rows and '"k8"' not in rows
    async with Consumer(kafka.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer, asyncio.timeout(60):
        consumer.subscribe(["t"])
        await consumer.getone()
    lag = (await page.get("/api/groups/g/lag")).json()
    assert (lag["state"], lag["lag"]) == ("Empty", 19)
    shown = await page.post("/api/groups/g/reset", json={"kind": "latest"})
    assert shown.status_code == 200, shown.text
    reset = await page.post("/api/groups/g/offsets", json={"rows": shown.json()["rows"]})
    assert reset.status_code == 200, reset.text
    assert (await page.get("/api/groups/g/lag")).json()["lag"] == 0
    configs = {one["name"]: one for one in (await page.get("/api/topics/t/configs")).json()["configs"]}
    assert configs["retention.ms"]["source"] == "topic" and "retention" in configs["retention.ms"]["doc"]
    overview = (await page.get("/api/overview")).json()
    assert len(overview["brokers"]) == 1 and overview["offline"] == 0
    assert (await page.get("/api/disks")).json()["dirs"][0]["total"] > 0
    assert (await page.get("/api/quotas")).json()["missing"] is None
    broker = (await page.get(f"/api/brokers/{overview['controller']}")).json()
    assert (broker["is_live"], broker["version"]) == (True, ".".join(NEWEST.split(".")[:2]))
    assert (await page.get("/api/users")).json() == {"users": [], "total": 0}
    assert (await page.get("/api/transactions")).json() == {"transactions": [], "total": 0, "open": 0}
    moving = (await page.get("/api/reassignments")).json()
    assert (moving["moving"], moving["elections"]) == ([], [])
    lags = (await page.get("/api/group-lags")).json()["groups"]["g"]
    assert lags[1:4] == [["t"], 1, 0], lags
    assert (await page.post("/api/topics/t/clone", json={"name": "t2"})).status_code == 200
    assert (await page.post("/api/topics/t/empty", json={"confirm": "t"})).status_code == 200
    assert (await page.post("/api/groups/g/delete", json={"confirm": "g"})).status_code == 200
    async with asyncio.timeout(60):
        while not (points := (await page.get("/api/rates")).json()["points"]):
            await asyncio.sleep(0.1)
    assert points[-1][2] is not None, "how many bytes came in"
    grown = await page.post("/api/topics/t/partitions", json={"partitions": 3})
    gone = await page.post("/api/topics/t/delete", json={"confirm": "t"})
    assert (grown.status_code, gone.status_code) == (200, 200), grown.text
