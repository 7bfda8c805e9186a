"""Pages of records, searches by header and by comparison, exports, live records, clones and emptied topics."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from tests.tools.console.test_console import TIMEOUT, records

from barnabas import Broker
from barnabas.clients import Producer
from barnabas.tools.console.cluster import WatchedCluster
from barnabas.tools.console.record_filter import header_filter, parse_condition, record_filter
from barnabas.tools.console.records import Query, RecordPages


async def all_pages(page: httpx.AsyncClient, topic: str, **asked: str | int) -> list[list[tuple[int, int]]]:
    """Partition and offset of the rows of each page from the newest on."""
    at, found = "latest", []
    while at is not None:
        rows, end = await records(page, topic, **asked, **{"from": at})
        found.append([(row["p"], row["o"]) for row in rows])
        at = end["next"]
    return found


async def test_every_record_is_in_one_page_even_if_timestamps_decrease(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("paged", 3)
    async with Producer(broker.bootstrap) as producer:
        sent = [
            await producer.send("paged", b"%d" % n, partition=n % 3, timestamp_ms=1_000_000 + 7919 * n % 1000)
            for n in range(60)
        ]
        await asyncio.gather(*sent)
    wanted = {(n % 3, n // 3) for n in range(60)}
    for limit in (7, 20, 500):
        pages = await all_pages(page, "paged", limit=limit)
        shown = [place for rows in pages for place in rows]
        assert len(shown) == len(wanted) and set(shown) == wanted, limit
        assert all(len(rows) == limit for rows in pages[:-1]), limit
    searched = await all_pages(page, "paged", limit=4, text="5")
    assert {place for rows in searched for place in rows} == {(n % 3, n // 3) for n in range(60) if "5" in str(n)}
    assert all(len(rows) == 4 for rows in searched[:-1])


async def test_pages_are_not_disturbed_by_new_records(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("growing", 1)
    broker.produce("growing", ["x"] * 10)
    rows, end = await records(page, "growing", limit=4)
    assert ([row["o"] for row in rows], end["next"]) == ([9, 8, 7, 6], "before:0:6")
    broker.produce("growing", ["x"] * 10)
    rows, end = await records(page, "growing", limit=4, **{"from": end["next"]})
    assert ([row["o"] for row in rows], end["next"]) == ([5, 4, 3, 2], "before:0:2")
    rows, end = await records(page, "growing", limit=4, **{"from": end["next"]})
    assert ([row["o"] for row in rows], end["next"]) == ([1, 0], None)
    for nonsense in ("before:", "before:x", "before:0:y"):
        assert "error" in (await records(page, "growing", **{"from": nonsense}))[1], nonsense


async def test_headers_and_comparisons_are_searched(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("compared", 1)
    async with Producer(broker.bootstrap) as producer:
        for n in range(10):
            value = json.dumps({"x": n, "at": f"2026-01-{n + 1:02}"}).encode()
            await producer.send_and_wait("compared", value, headers=[("n", b"%d" % n), *([("odd", b"")] * (n % 2))])
    for asked, wanted in (
        ({"path": "$.x > 5"}, [6, 7, 8, 9]),
        ({"path": "$.x >= 5 "}, [5, 6, 7, 8, 9]),
        ({"path": "$.x < 1.5"}, [0, 1]),
        ({"path": "$.x<=1"}, [0, 1]),
        ({"path": "$.x != 3"}, [0, 1, 2, 4, 5, 6, 7, 8, 9]),
        ({"path": "$.at > 2026-01-08"}, [8, 9]),
        ({"header": "odd"}, [1, 3, 5, 7, 9]),
        ({"header": "n = 4"}, [4]),
        ({"header": "n = 4", "path": "$.x > 5"}, []),
        ({"header": "odd", "path": "$.x > 5"}, [7, 9]),
    ):
        for begin in ("earliest", "latest"):
            rows, _ = await records(page, "compared", **{"from": begin}, **asked)
            assert sorted(row["o"] for row in rows) == wanted, (asked, begin)
    for path in ("$.x >", "$.x ~ 5", "$.x > ", "$.a b"):
        refused = await page.get("/api/topics/compared/records", params={"path": path})
        assert refused.status_code == 400 and "expected a path such as" in refused.json()["error"], path


@pytest.mark.parametrize(
    ("document", "path", "is_found"),
    [
        ('{"x": 10}', "$.x > 9", True),
        ('{"x": "10"}', "$.x > 9", False),
        ('{"x": 9007199254740993}', "$.x > 9007199254740992", True),
        ('{"x": true}', "$.x > 0", False),
        ('{"x": 1}', "$.x > one", False),
        ('{"x": 1}', "$.x < NaN", False),
        ('{"x": 1e400}', "$.x > 1e399", True),
        ('{"x": null}', "$.x != 1", True),
        ("{}", "$.x != 1", False),
        ('{"x": [1, 2]}', "$.x[1] >= 2", True),
        ('{"a.b": {"c d": 5}}', '$["a.b"]["c d"] = 5', True),
        ('{"x": 1, "x": 7}', "$.x > 5", True),
        ("5", "$ > 4", True),
        ('{"x": "a = b"}', "$.x = a = b", True),
    ],
)
def test_a_comparison_is_by_value(document: str, path: str, is_found: bool) -> None:
    assert record_filter(path=path)(None, document.encode()) is is_found


def test_a_wrong_path_names_the_format() -> None:
    for path in ("$[[", "$.x >", "$.x ~ 1", "$.a b", '$["x'):
        with pytest.raises(ValueError, match=r"expected a path such as \$\.user\.ids\[0\]"):
            parse_condition(path)
    assert header_filter("a")([("a", None)]) and not header_filter("a = ")([("a", None)])


async def test_records_are_exported_for_the_command_line(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("exported", 2)
    broker.produce("exported", [(f"k{n}", f"v{n}") for n in range(1000)], partition=0)
    broker.produce("exported", [(b"\xff", None)], partition=1)

    async def export(**asked: str | int) -> list[dict[str, Any]]:
        answer = await page.get("/api/topics/exported/export", params=asked)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-disposition"] == 'attachment; filename="exported.jsonl"'
        return [json.loads(line) for line in answer.text.splitlines()]

    every = await export(**{"from": "earliest"})
    assert len(every) == 1001
    assert [one["payload"] for one in every if one["partition"] == 0] == [f"v{n}" for n in range(1000)]
    (binary,) = (one for one in every if one["partition"] == 1)
    assert (binary["key"], binary["payload"]) == ({"base64": "/w=="}, None)
    assert [one["offset"] for one in await export(most=3, partition=0, **{"from": "earliest"})] == [0, 1, 2]
    assert [one["offset"] for one in await export(most=3, partition=0)] == [997, 998, 999]
    assert [one["key"] for one in await export(key="k7", **{"from": "earliest"})] == ["k7"]
    assert (await page.get("/api/topics/nothing/export")).status_code == 404
    assert (await page.get("/api/topics/exported/export", params={"path": "$.x >"})).status_code == 400
    assert (await page.get("/api/topics/exported/export", params={"from": "before:x"})).status_code == 400


async def test_a_live_page_shows_every_record_of_a_busy_topic(broker: Broker, cluster: WatchedCluster) -> None:
    """Several partitions and bursts above a hundred records made the page skip records."""
    broker.create_topic("busy", 3)
    for partition in range(3):
        broker.produce("busy", [f"old{n}" for n in range(60)], partition=partition)
    query = Query.parse("busy", {"follow": "1", "limit": "50"})
    wanted = {f"new{n}" for n in range(900)}
    seen, first = list[str](), list[str]()
    async with asyncio.timeout(TIMEOUT), aclosing(RecordPages(cluster).stream(query)) as lines:
        async for line in lines:
            assert line["skipped"] == 0
            texts = [row["value"]["text"] for row in line["rows"]]
            if not first:
                first = texts
                for partition in range(3):
                    burst = [f"new{n}" for n in range(900) if n % 3 == partition]
                    await asyncio.to_thread(broker.produce, "busy", burst, partition=partition)
            else:
                seen += texts
            if len(seen) >= len(wanted):
                break
    assert len(first) == 50 and sorted(seen) == sorted(wanted)


async def test_a_topic_is_cloned_and_emptied(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("source", 3, {"retention.ms": 5000, "cleanup.policy": "delete"})
    broker.produce("source", ["x"] * 9)
    assert (await page.post("/api/topics/source/clone", json={"name": "copy"})).status_code == 200
    found = (await page.get("/api/topics/copy/extents")).json()["extents"]
    assert [found[str(index)][:2] for index in range(3)] == [[0, 0]] * 3
    configs = {one["name"]: one for one in (await page.get("/api/topics/copy/configs")).json()["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("5000", "topic")
    assert configs["segment.bytes"]["source"] != "topic"
    again = await page.post("/api/topics/source/clone", json={"name": "copy"})
    assert again.status_code == 409 and "already exists" in again.text
    assert (await page.post("/api/topics/source/clone", json={"name": "a b"})).status_code == 409
    assert (await page.post("/api/topics/nothing/clone", json={"name": "b"})).status_code == 404

    assert (await page.post("/api/topics/source/empty", json={"confirm": "sourc"})).status_code == 400
    assert len((await records(page, "source"))[0]) == 9
    assert (await page.post("/api/topics/source/empty", json={"confirm": "source"})).status_code == 200
    assert (await records(page, "source"))[0] == []
    broker.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    refused = await page.post("/api/topics/compacted/empty", json={"confirm": "compacted"})
    assert refused.status_code == 409 and "POLICY_VIOLATION" in refused.text
