"""The pages of schemas, with a registry next to the broker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from tests.tools.console.conftest import page_of

from barnabas import Broker
from barnabas.clients.decoding.schemas import SchemaRegistry
from barnabas.tools.console.cluster import ConnectionSettings, WatchedCluster

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "note", "type": "string", "default": "\u202e"}]}
BREAKING = {**FIRST, "fields": [{"name": "sum", "type": "long"}]}
SUBJECT = "orders/value é"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"orders": 1}, schema_registry=True) as running:
        yield running


@pytest.fixture
async def cluster(broker: Broker) -> AsyncIterator[WatchedCluster]:
    registry = SchemaRegistry(broker.schema_registry_url)
    cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}, [registry]))
    await cluster.start()
    yield cluster
    await cluster.close()


async def done(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_subjects_versions_levels_and_differences(broker: Broker, page: httpx.AsyncClient) -> None:
    listed = await done(await page.get("/api/schemas"))
    assert (listed["registries"], listed["subjects"]) == ([broker.schema_registry_url], [])
    assert (listed["level"], listed["missing"]) == ("BACKWARD", None)
    new = {"subject": SUBJECT, "type": "AVRO", "schema": json.dumps(FIRST)}
    first = (await done(await page.post("/api/schemas/register", json=new)))["id"]
    check = {**new, "schema": json.dumps(SECOND)}
    assert await done(await page.post("/api/schemas/check", json=check)) == {"messages": []}
    second = (await done(await page.post("/api/schemas/register", json=check)))["id"]
    broken = {**new, "schema": json.dumps(BREAKING)}
    assert (await done(await page.post("/api/schemas/check", json=broken)))["messages"]
    refused = await page.post("/api/schemas/register", json=broken)
    assert refused.status_code == 409 and "incompatible" in refused.text.lower()

    assert (await done(await page.get("/api/schemas")))["subjects"] == [SUBJECT]
    found = await done(await page.get("/api/schemas/subject", params={"subject": SUBJECT}))
    assert (found["versions"], found["level"]) == ([1, 2], "BACKWARD")
    version = await done(await page.get("/api/schemas/version", params={"subject": SUBJECT, "version": 2}))
    assert (version["id"], version["type"], version["references"]) == (second, "AVRO", [])
    assert "\\u202e" in version["schema"] and "\u202e" not in version["schema"]
    asked: dict[str, str | int] = {"subject": SUBJECT, "from": 1, "to": 2}
    lines = (await done(await page.get("/api/schemas/difference", params=asked)))["lines"]
    assert ["+", '      "name": "note",'] in lines and not [
        line for sign, line in lines if sign == "-" and "id" in line
    ]
    assert ["=", '  "name": "Order",'] in lines
    assert await done(await page.get(f"/api/schemas/id/{first}")) == {"id": first, "versions": [[SUBJECT, 1]]}

    await done(await page.post("/api/schemas/level", json={"subject": SUBJECT, "level": "NONE"}))
    assert (await done(await page.get("/api/schemas/subject", params={"subject": SUBJECT})))["level"] == "NONE"
    assert (await done(await page.get("/api/schemas")))["level"] == "BACKWARD"
    await done(await page.post("/api/schemas/register", json=broken))


async def test_two_large_schemas_without_a_common_field_are_compared(broker: Broker, page: httpx.AsyncClient) -> None:
    for version in "ab":
        fields = [{"name": f"{version}{number}", "type": "long"} for number in range(450)]
        schema = json.dumps({**FIRST, "name": "Wide", "fields": fields})
        await done(await page.post("/api/schemas/level", json={"subject": "wide", "level": "NONE"}))
        new = {"subject": "wide", "type": "AVRO", "schema": schema}
        await done(await page.post("/api/schemas/register", json=new))
    asked: dict[str, str | int] = {"subject": "wide", "from": 1, "to": 2}
    lines = (await done(await page.get("/api/schemas/difference", params=asked)))["lines"]
    for sign, version in (("-", "a"), ("+", "b")):
        names = [line for found, line in lines if found in (sign, "=")]
        shown = json.loads("\n".join(names))
        assert [field["name"] for field in shown["fields"]] == [f"{version}{number}" for number in range(450)]


async def test_wrong_requests_have_reasons(page: httpx.AsyncClient) -> None:
    wrong: tuple[tuple[str, dict[str, str | int]], ...] = (
        ("subject", {}),
        ("subject", {"subject": "x", "registry": 7}),
        ("subject", {"subject": "x", "registry": -1}),
        ("version", {"subject": "x", "version": "y"}),
        ("difference", {"subject": "x"}),
    )
    for path, params in wrong:
        assert (await page.get(f"/api/schemas/{path}", params=params)).status_code == 400, (path, params)
    missing = await page.get("/api/schemas/subject", params={"subject": "no-such"})
    assert missing.status_code == 404 and "no-such" in missing.json()["error"]
    assert (await page.get("/api/schemas/id/987654")).status_code == 404
    for path, body in (
        ("level", {"level": "SOME"}),
        ("level", {"level": "FULL", "subject": 7}),
        ("check", {"subject": "x"}),
        ("check", {"subject": "x", "schema": "{}", "type": "XML"}),
        ("register", {"schema": "{}"}),
    ):
        assert (await page.post(f"/api/schemas/{path}", json=body)).status_code == 400, (path, body)
    refused = await page.post("/api/schemas/register", json={"subject": "x", "schema": "{"})
    assert refused.status_code == 409 and "schema" in refused.text.lower()


async def test_without_a_registry_there_is_a_reason(broker: Broker) -> None:
    cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}))
    async with page_of(cluster) as page:
        listed = await done(await page.get("/api/schemas"))
        assert listed["subjects"] == [] and "--schemas" in listed["missing"]
        assert (await page.get("/api/schemas/id/1")).status_code == 400
    unreachable = SchemaRegistry("http://127.0.0.1:1")
    cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}, [unreachable]))
    async with page_of(cluster) as page:
        refused = await page.get("/api/schemas")
        assert refused.status_code == 503 and "schema registry http://127.0.0.1:1" in refused.text


async def test_a_record_has_its_schema_id(broker: Broker, page: httpx.AsyncClient) -> None:
    new = {"subject": "orders-value", "type": "AVRO", "schema": '"string"'}
    schema_id = (await done(await page.post("/api/schemas/register", json=new)))["id"]
    broker.produce("orders", [(None, b"\0" + schema_id.to_bytes(4) + b"\x04hi"), (None, b"plain")])
    record = await done(await page.get("/api/topics/orders/records/0/0"))
    assert record["value"]["schema_id"] == schema_id and record["value"]["forms"]["avro"] == '"hi"'
    assert (await done(await page.get("/api/topics/orders/records/0/1")))["value"]["schema_id"] is None
