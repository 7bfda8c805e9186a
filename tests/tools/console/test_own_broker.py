"""The console beside a broker of ours: what it is told past Kafka's protocol."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server_process import ServerProcess
from tests.tools.console.conftest import BASE, TOKEN

from barnabas import Broker
from barnabas.clients.host import now_ms
from barnabas.protocol.apis import ApiKey
from barnabas.server import console_backend
from barnabas.server.console_backend import MAX_LOGS, ConsoleBackend
from barnabas.server.metrics import slow_requests
from barnabas.tools.console import activity
from barnabas.tools.console.app import console_app
from barnabas.tools.console.cluster import ConnectionSettings, WatchedCluster
from barnabas.tools.console.guard import TOKEN_HEADER, PageGuard

COMPACTED: dict[str, Any] = {"cleanup.policy": "compact", "segment.bytes": 2000, "min.cleanable.dirty.ratio": 1}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config={"metrics.listeners": "127.0.0.1:0"}) as running:
        yield running


@pytest.fixture
async def cluster(broker: Broker) -> AsyncIterator[WatchedCluster]:
    loop = broker._loop
    assert loop is not None
    cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}), ConsoleBackend(broker.server, loop))
    await cluster.start()
    yield cluster
    await cluster.close()


async def test_a_topic_on_the_disk_before_and_after_the_cleaner(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("users", 1, COMPACTED)
    broker.create_topic("kept", MAX_LOGS + 1, {"retention.ms": 1000, "segment.bytes": 2000})
    for _ in range(40):
        broker.produce("users", [(f"k{i}", "x" * 100) for i in range(4)])
        broker.produce("kept", ["x" * 100] * 4, partition=0)
    found = (await page.get("/api/topics/users/disk")).json()
    (log,) = found["logs"]
    assert len(log["segments"]) > 3 and log["segments"][0]["files"]["log"] == log["segments"][0]["size"]
    assert log["cleaner"]["first_dirty_offset"] == 0 and log["segments"][0]["modified"] > 0
    assert found["next"] is None
    assert (await page.post("/api/topics/users/compact/0", json={})).json()["passes"][0]["reclaimed_bytes"] > 0
    (log,) = (await page.get("/api/topics/users/disk")).json()["logs"]
    assert log["cleaner"]["first_dirty_offset"] > 0 and log["cleaner"]["reclaimed_bytes"] > 0
    kept = (await page.get("/api/topics/kept/disk")).json()
    assert [one["partition"] for one in kept["logs"]] == list(range(MAX_LOGS)) and kept["next"] == MAX_LOGS
    assert (kept["logs"][0]["retention_ms"], kept["logs"][0]["cleaner"]) == (1000, None)
    rest = (await page.get(f"/api/topics/kept/disk?first={kept['next']}")).json()
    assert ([one["partition"] for one in rest["logs"]], rest["next"]) == ([MAX_LOGS], None)
    for path in ("kept/compact/0", "nothing/compact/0"):
        refused = await page.post(f"/api/topics/{path}", json={})
        assert refused.status_code in (404, 409), refused.text


async def test_tombstones_are_counted_where_they_are(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("graves", 1, {**COMPACTED, "cleanup.policy": "compact,delete"})
    for at in range(20):
        broker.produce("graves", [(f"k{at}", "x" * 300), (f"k{at}", None), ("other", "x" * 300)])
    path = "/api/topics/graves/tombstones/0"
    found = (await page.post(path, json={})).json()
    (log,) = (await page.get("/api/topics/graves/disk")).json()["logs"]
    assert [one["base"] for one in found["segments"]] == [one["base"] for one in log["segments"]]
    assert (sum(one["records"] for one in found["segments"]), found["next"]) == (60, None)
    assert sum(one["tombstones"] for one in found["segments"]) == 20
    last = found["segments"][-1]
    assert (await page.post(path, json={"first": last["base"]})).json()["segments"] == [last]
    for path, body in (
        ("nothing/tombstones/0", {}),
        ("graves/tombstones/7", {}),
        ("graves/tombstones/0", {"first": "x"}),
    ):
        assert (await page.post(f"/api/topics/{path}", json=body)).status_code in (400, 404)
    page.headers[TOKEN_HEADER] = "another's"
    assert (await page.post("/api/topics/graves/tombstones/0", json={})).status_code == 403


async def test_counting_ends_after_a_while_and_goes_on(
    broker: Broker, page: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_backend, "COUNT_SECONDS", 0.0)
    broker.create_topic("long", 1, COMPACTED)
    for _ in range(20):
        broker.produce("long", [("k", "x" * 300), ("k", None)])
    seen, first = list[int](), 0
    while first is not None:
        found = (await page.post("/api/topics/long/tombstones/0", json={"first": first})).json()
        assert len(found["segments"]) == 1
        seen, first = [*seen, found["segments"][0]["tombstones"]], found["next"]
    assert len(seen) > 3 and sum(seen) == 20


async def test_what_was_asked_for_and_how_long_it_took(
    broker: Broker, page: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "SECONDS", 0.1)
    broker.create_topic("asked", 1)
    assert broker.server.metrics is not None
    monkeypatch.setattr(slow_requests, "MIN_SECONDS", 0.0)  # any will do, in the next minute, too
    broker.server.metrics.requests.slow.of("Produce", ApiKey.PRODUCE).watched.floor = 0.0
    for _ in range(20):  # of an API's requests the first in each hundredth of a second is timed
        await page.post("/api/topics/asked/records", json={"value": {"text": "x" * 1000}})
    told = (await page.get("/api/requests")).json()
    rows = {row["api"]: row for row in told["requests"]}
    slow = next(one for one in told["slow"] if one["api"] == "Produce")
    assert slow["client_id"] == "barnabas-console" and slow["principal"] == "ANONYMOUS" and slow["slowness"] > 0
    assert slow["host"] == "127.0.0.1" and abs(slow["time"] - now_ms()) < 60_000
    assert rows["Produce"]["count"] >= 20
    assert rows["Produce"]["total"]["0.99"] >= rows["Produce"]["local"]["0.50"] > 0
    async with asyncio.timeout(60):
        await page.get("/api/topics/asked/records")
        while not any(bytes_out for *_, bytes_out in (await page.get("/api/rates")).json()["points"]):
            await page.get("/api/topics/asked/records")
            await asyncio.sleep(0.05)


async def test_acls_have_a_reason_without_an_authorizer(page: httpx.AsyncClient) -> None:
    acls = (await page.get("/api/acls")).json()
    assert acls["acls"] == [] and acls["missing"].startswith("SECURITY_DISABLED")
    assert (await page.get("/api/quotas")).json() == {"quotas": [], "missing": None}


async def test_a_page_of_another_cluster_has_no_such_thing(broker: Broker) -> None:
    cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}))
    app = console_app(cluster, partial(PageGuard, token=TOKEN), TOKEN)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        assert 'name="own-broker" content=""' in (await client.get("/")).text
        for path in ("requests", "topics/users/disk"):
            assert (await client.get(f"/api/{path}")).status_code == 404
        assert (await client.post("/api/topics/users/compact/0", headers={TOKEN_HEADER: TOKEN})).status_code == 404


def test_one_command_starts_both(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "barnabas.tools.cli", "start", "--data", str(tmp_path / "data"), "--port", "0"]
    process = ServerProcess([*command, "--console", "127.0.0.1:0"], tmp_path / "log")
    try:
        process.wait_ready(lambda: "ready broker.id" in process.log_tail(), timeout_s=60, what="the broker is ready")
        (url,) = re.findall("^console (.*)$", process.log_tail(), re.MULTILINE)
        assert 'name="own-broker" content="yes"' in httpx.get(url, timeout=60).text
        assert httpx.get(f"{url}api/overview", timeout=60).json()["controller"] == 1
    finally:
        status = process.end()
    assert status == 0
