"""What the console's page is told, and what it can do."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server_process import free_port
from tests.tools.console.conftest import TOKEN

from barnabas import Broker
from barnabas.clients import Consumer, Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.tools.console import activity
from barnabas.tools.console import records as record_pages
from barnabas.tools.console.app import console_app
from barnabas.tools.console.cluster import MAX_FOLLOWINGS, ConnectionSettings, WatchedCluster
from barnabas.tools.console.guard import PageGuard
from barnabas.tools.console.records import FOLLOW_BEHIND, Query, RecordPages
from barnabas.tools.console.server import ConsoleThread
from barnabas.tools.http_server import ListenAddress

TIMEOUT = 60
NAMES = ("messages", "bytes in", "bytes out")


async def records(page: httpx.AsyncClient, topic: str, **asked: str | int) -> tuple[list[Any], dict[str, Any]]:
    """The rows of a reading, and how it ended."""
    answer = await page.get(f"/api/topics/{topic}/records", params=asked)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    return [row for line in lines for row in line.get("rows", ())], lines[-1]


async def done(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_topic_from_its_making_to_its_end(page: httpx.AsyncClient) -> None:
    await done(await page.post("/api/topics", json={"name": "a", "partitions": "2", "configs": {"retention.ms": "9"}}))
    assert (await done(await page.get("/api/topics")))["rows"] == [["a", 2, 1, 0, 0]]
    await done(await page.post("/api/topics/a/partitions", json={"partitions": 3}))
    assert [row[:2] for row in (await done(await page.get("/api/topics/a")))["rows"]] == [[0, 1], [1, 1], [2, 1]]
    assert (await done(await page.get("/api/topics/a/extents")))["extents"]["2"] == [0, 0, 0]
    overview = await done(await page.get("/api/overview"))
    assert (overview["topics"], overview["partitions"], overview["under_replicated"]) == (1, 3, 0)

    async def retention() -> dict[str, Any]:
        configs = (await done(await page.get("/api/topics/a/configs")))["configs"]
        (one,) = (one for one in configs if one["name"] == "retention.ms")
        return dict(one)

    found = await retention()
    assert (found["value"], found["source"]) == ("9", "topic") and found["doc"]
    await done(await page.post("/api/topics/a/configs", json={"key": "retention.ms", "value": None}))
    assert (await retention())["source"] == "default"
    refused = await page.post("/api/topics/a/configs", json={"key": "retention.ms", "value": "soon"})
    assert refused.status_code == 409 and "retention.ms" in refused.json()["error"]

    assert (await page.post("/api/topics/a/delete", json={"confirm": "b"})).status_code == 400
    await done(await page.post("/api/topics/a/delete", json={"confirm": "a"}))
    assert (await done(await page.get("/api/topics")))["rows"] == []
    assert (await page.get("/api/topics/a")).status_code == 404


async def test_the_newest_are_as_many_as_there_are(broker: Broker, page: httpx.AsyncClient) -> None:
    """Where every other offset is a transaction's marker, and where one of many partitions has all records."""
    broker.create_topic("marked", 1)
    broker.create_topic("uneven", 100)
    broker.produce("uneven", [b"%d" % n for n in range(60)], partition=7)
    async with Producer(broker.bootstrap, transactional_id="console") as producer:
        for n in range(60):
            async with producer.transaction():
                await producer.send("marked", b"%d" % n)
    for topic in ("marked", "uneven"):
        for limit in (1, 11, 50, 60, 70):
            found, end = await records(page, topic, limit=limit)
            assert [row["value"]["text"] for row in found] == [str(n) for n in range(59, -1, -1)][:limit], topic
            assert end["done"] and (end["next"] is None) == (limit >= 60)


async def test_records_are_found_by_place_key_text_and_path(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("r", 1)
    broker.produce("r", [(f"k{i % 10}", json.dumps({"n": i, "of": {"ten": [i % 10]}})) for i in range(1000)])
    newest, end = await records(page, "r", limit=3)
    assert ([row["o"] for row in newest], end) == (
        [999, 998, 997],
        {"done": True, "next": "before:0:997", "late": False},
    )
    seen, at = list[int](), "earliest"
    while at is not None:
        found, end = await records(page, "r", limit=30, key="k3", **{"from": at})
        seen, at = seen + [row["o"] for row in found], end["next"]
    assert seen == list(range(3, 1000, 10))
    first, end = await records(page, "r", limit=4, **{"from": "earliest"})
    assert ([row["o"] for row in first], end["next"]) == ([0, 1, 2, 3], "0:4")
    assert [row["o"] for row in (await records(page, "r", limit=2, **{"from": end["next"]}))[0]] == [4, 5]
    assert [row["o"] for row in (await records(page, "r", partition=0, **{"from": "offset:998"}))[0]] == [998, 999]
    late, _ = await records(page, "r", **{"from": f"time:{first[0]['t'] + 10**9}"})
    assert late == []
    for asked in ({"key": "k7"}, {"path": "$.of.ten[0] = 7"}):
        found, _ = await records(page, "r", limit=500, **{"from": "earliest"}, **asked)
        assert [row["o"] for row in found] == list(range(7, 1000, 10)), asked
    found, _ = await records(page, "r", text='"n": 512,')
    assert [row["o"] for row in found] == [512]
    assert (await page.get("/api/topics/r/records", params={"path": "$[["})).status_code == 400
    for topic, wanted in (("nothing", {}), ("r", {"partition": 7})):
        _, end = await records(page, topic, **wanted)
        assert "UNKNOWN_TOPIC_OR_PARTITION" in end["error"]
    assert "error" in (await records(page, "r", **{"from": "offset:x"}))[1]


async def test_one_record_and_one_more_of_it(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("one", 1)
    large = b"\x00\xff" * 300_000
    sent = {"key": {"text": "k"}, "value": {"text": '{"a": 1}'}, "headers": [{"key": "h", "value": {"text": "v"}}]}
    assert await done(await page.post("/api/topics/one/records", json=sent)) == {"partition": 0, "offset": 0}
    record = await done(await page.get("/api/topics/one/records/0/0"))
    assert record["value"]["forms"]["json"] == '{\n  "a": 1\n}'
    assert (record["key"]["raw"], record["headers"][0]["value"]["text"]) == ("k", "v")
    broker.produce("one", [(None, large)])
    assert (await done(await page.get("/api/topics/one/records/0/1")))["value"]["base64"] is None
    copy = {"key": None, "copy": {"topic": "one", "partition": 0, "offset": 1}}
    assert (await done(await page.post("/api/topics/one/records", json=copy)))["offset"] == 2
    file = await page.get("/api/topics/one/records/0/2/value")
    assert file.content == large
    assert file.headers["content-disposition"] == 'attachment; filename="one-0-2.bin"'
    assert (await page.get("/api/topics/one/records/0/3")).status_code == 404
    assert (await page.get("/api/topics/one/records/7/0")).status_code == 404
    for path, partition in (("nothing", None), ("one", 7)):
        refused = await page.post(f"/api/topics/{path}/records", json={"value": None, "partition": partition})
        assert refused.status_code == 404, refused.text
    assert (await page.get("/api/topics/nothing")).status_code == 404, "a mistake made a topic"
    for nonsense in ({"value": 7}, {"value": {"base64": "?"}}, {"partition": "x"}, {"headers": 7}, {"headers": [7]}):
        assert (await page.post("/api/topics/one/records", json=nonsense)).status_code == 400, nonsense


async def test_who_follows_gets_what_comes_and_is_never_far_behind(broker: Broker, cluster: WatchedCluster) -> None:
    broker.create_topic("f", 2)
    broker.produce("f", [f"old{i}" for i in range(FOLLOW_BEHIND * 2)], partition=0)
    query = Query.parse("f", {"follow": "1", "limit": "1"})
    skipped, texts = 0, list[str]()
    async with asyncio.timeout(TIMEOUT), aclosing(RecordPages(cluster).stream(query)) as lines:
        async for line in lines:
            texts += [row["value"]["text"] for row in line["rows"]]
            if "old3999" in texts and "new" not in texts and not skipped:
                await asyncio.to_thread(broker.produce, "f", ["x"] * (FOLLOW_BEHIND * 3), partition=0)
                await asyncio.to_thread(broker.produce, "f", ["new"], partition=1)
            skipped += line["skipped"]
            if skipped and "new" in texts:
                break
    assert skipped > 0


async def test_pages_that_follow_leave_room_for_those_that_read(broker: Broker, cluster: WatchedCluster) -> None:
    broker.create_topic("many", 1)
    broker.produce("many", ["x"])
    query = Query.parse("many", {"follow": "1"})
    following = [RecordPages(cluster).stream(query) for _ in range(MAX_FOLLOWINGS)]
    async with asyncio.timeout(TIMEOUT):
        for stream in following:
            assert len((await anext(stream))["rows"]) == 1
        async with aclosing(RecordPages(cluster).stream(query)) as refused:
            assert "can show topics live" in (await anext(refused))["error"]
        assert [line async for line in RecordPages(cluster).stream(Query.parse("many", {}))][-1]["done"]
        for stream in following:
            await stream.aclose()
        async with aclosing(RecordPages(cluster).stream(query)) as again:
            assert len((await anext(again))["rows"]) == 1


async def test_a_page_that_goes_leaves_no_connection(broker: Broker, cluster: WatchedCluster) -> None:
    broker.create_topic("left", 1)
    broker.produce("left", ["x"])
    app = console_app(cluster, partial(PageGuard, token=TOKEN), TOKEN)

    def connections() -> int:
        return sum(broker.server.sockets.connections_by_listener.values())

    async def follow() -> None:
        shown = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await shown.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message.get("body"):
                shown.set()

        asked = {"type": "http", "method": "GET", "path": "/api/topics/left/records", "query_string": b"follow=1"}
        await app({**asked, "headers": [(b"host", b"localhost")]}, receive, send)

    async with asyncio.timeout(TIMEOUT):
        assert [line async for line in RecordPages(cluster).stream(Query.parse("left", {}))][-1]["done"]
        before = connections()
        await asyncio.gather(*(follow() for _ in range(MAX_FOLLOWINGS)))
        while connections() > before:
            await asyncio.sleep(0.01)


async def test_a_record_that_does_not_come_is_not_waited_for(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_pages, "SCAN_SECONDS", 0.5)
    broker.create_topic("held", 1)
    cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {"isolation_level": "read_committed"}, {}))
    async with asyncio.timeout(TIMEOUT), Producer(broker.bootstrap, transactional_id="holds") as producer:
        await cluster.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait("held", b"x")
                with pytest.raises(TimeoutError):
                    await RecordPages(cluster).one("held", 0, 0)
            monkeypatch.undo()
            assert (await RecordPages(cluster).one("held", 0, 0)).value == b"x"
        finally:
            await cluster.close()


async def test_a_group_begins_elsewhere(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("g", 1)
    broker.produce("g", ["x"] * 10)
    async with Consumer(broker.bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["g"])
        await consumer.getone()
        await consumer.commit()
        group = await done(await page.get("/api/groups/readers/lag"))
        assert (group["state"], group["members"][0]["partitions"], group["rows"][0][:2]) == ("Stable", 1, ["g", 0])
        refused = await page.post("/api/groups/readers/reset", json={"kind": "latest"})
        assert refused.status_code == 409
    assert {"id": "readers", "protocol": "consumer"}.items() <= (await done(await page.get("/api/groups")))["groups"][
        0
    ].items()
    plan = await done(await page.post("/api/groups/readers/reset", json={"kind": "offset", "value": 4}))
    assert plan["rows"][0][3] == 4
    broker.produce("g", ["x"] * 10)
    latest = await done(await page.post("/api/groups/readers/reset", json={"kind": "latest"}))
    broker.produce("g", ["x"] * 10)
    await done(await page.post("/api/groups/readers/offsets", json={"rows": latest["rows"]}))
    assert (await done(await page.get("/api/groups/readers/lag")))["lag"] == 10, "not what was shown"
    moved = await page.post("/api/groups/readers/offsets", json={"rows": plan["rows"]})
    assert moved.status_code == 400 and "reload it" in moved.json()["error"]
    (row,) = latest["rows"]
    await done(await page.post("/api/groups/readers/offsets", json={"rows": [[*row[:2], row[3], 24]]}))
    for nonsense in (None, 7, [7], [["g", "x", 0, 1]], [["g", 0, 1]]):
        assert (await page.post("/api/groups/readers/offsets", json={"rows": nonsense})).status_code == 400
    assert (await done(await page.get("/api/groups/readers/lag")))["lag"] == 6
    assert (await page.post("/api/groups/readers/reset", json={"kind": "sideways"})).status_code == 400
    assert (await page.get("/api/groups/nobody/lag")).status_code == 404


async def test_a_partition_that_nobody_leads_is_told_and_the_others_are_read(
    broker: Broker, page: httpx.AsyncClient
) -> None:
    broker.create_topic("orphan", 3)
    for partition in range(3):
        broker.produce("orphan", ["x"], partition=partition)

    def without_leader(request: Any, response: Any) -> Any:
        for topic in response.topics:
            if topic.name == "orphan":
                gone = topic.partitions[1]
                gone.leader_id, gone.error_code = -1, ErrorCode.LEADER_NOT_AVAILABLE
        return response

    with broker.faults.change("Metadata", without_leader):
        for asked in ({}, {"from": "earliest"}, {"text": "x"}):
            answer = await page.get("/api/topics/orphan/records", params=asked)
            told = [json.loads(line) for line in answer.text.splitlines()]
            assert told[0] == {"leaderless": [1], "of": 1} and told[-1]["done"], asked
            assert sorted(row["p"] for line in told for row in line.get("rows", ())) == [0, 2]
        alone = await page.get("/api/topics/orphan/records", params={"partition": 1})
        assert [json.loads(line) for line in alone.text.splitlines()][-1] == {"done": True, "next": None}


async def test_rates_are_measured_while_somebody_looks(
    broker: Broker, page: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "SECONDS", 0.1)
    broker.create_topic("p", 1)
    async with asyncio.timeout(TIMEOUT):
        while True:
            broker.produce("p", ["x"] * 100)
            rates = await done(await page.get("/api/rates"))
            busiest = {one["topic"]: one["messages"] for one in rates["busiest"]}
            # Sizes are a second old at most, so that they grow in other points than ends do.
            seen = {name for _, *point in rates["points"] for name, rate in zip(NAMES, point, strict=True) if rate}
            if busiest.get("p", 0) > 0 and seen == {"messages", "bytes in"}:
                break
            await asyncio.sleep(0.05)


async def test_a_cluster_that_is_away_is_told_of_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    broker = Broker({"t": 1}, data_dir=tmp_path, port=port)
    await asyncio.to_thread(broker.start)
    console = ConsoleThread(ConnectionSettings(broker.bootstrap, {}, {}, {}), ListenAddress("127.0.0.1", 0))
    try:
        async with httpx.AsyncClient(base_url=await console.start(), timeout=TIMEOUT) as page:
            assert (await page.get("/api/topics/t")).status_code == 200
            await asyncio.to_thread(broker.stop)
            told = await page.get("/api/topics/t")
            assert (told.status_code, f"127.0.0.1:{port}" in told.text) == (503, True)
            assert "error" in (await records(page, "t"))[1]
            broker = Broker(data_dir=tmp_path, port=port)
            await asyncio.to_thread(broker.start)
            assert (await page.get("/api/topics/t")).status_code == 200
    finally:
        await console.stop()
        await asyncio.to_thread(broker.stop)
