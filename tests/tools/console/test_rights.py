"""Quotas and rules of access as the console changes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.tools.console.conftest import page_of

from barnabas import Broker
from barnabas.tools.console.cluster import ConnectionSettings, WatchedCluster
from barnabas.tools.console.guard import TOKEN_HEADER

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RULE = {
    "principal": "User:anna",
    "permission": "allow",
    "operation": "read",
    "resource": "topic",
    "name": "orders-",
    "pattern": "prefixed",
    "host": "*",
}


@pytest.fixture
async def page() -> AsyncIterator[httpx.AsyncClient]:
    """Of a broker with rules."""
    with Broker(config={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}) as broker:
        cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}))
        await cluster.start()
        async with page_of(cluster) as page:
            yield page
        await cluster.close()


async def test_rules_and_quotas_come_and_go(page: httpx.AsyncClient) -> None:
    other = {**RULE, "operation": "write"}
    for rule in (RULE, other):
        assert (await page.post("/api/rights/rules", json=rule)).json() == {"done": True}
    told = (await page.get("/api/rights")).json()
    assert (told["acls"], told["missing"]["acls"]) == ([RULE, other], None)
    assert (await page.post("/api/rights/rules/remove", json=RULE)).json() == {"removed": 1}
    assert (await page.post("/api/rights/rules/remove", json=RULE)).json() == {"removed": 0}
    assert (await page.get("/api/rights")).json()["acls"] == [other], "the one, and no other"

    quota = {"entity": {"user": "anna", "client-id": None}, "values": {"producer_byte_rate": "1e6"}}
    assert (await page.post("/api/rights/quotas", json=quota)).json() == {"done": True}
    (now,) = (await page.get("/api/rights")).json()["quotas"]
    assert now == {"entity": quota["entity"], "values": {"producer_byte_rate": 1e6}}
    gone = {**quota, "values": {"producer_byte_rate": None}}
    assert (await page.post("/api/rights/quotas", json=gone)).json() == {"done": True}
    assert (await page.get("/api/rights")).json()["quotas"] == []


async def test_nonsense_and_strangers_change_nothing(page: httpx.AsyncClient) -> None:
    for field, value in (
        ("operation", "any"),
        ("operation", "READ"),
        ("resource", "any"),
        ("pattern", "match"),
        ("permission", {}),
        ("name", ""),
        ("principal", None),
        ("host", " "),
        ("principal", "anna"),
    ):
        refused = await page.post("/api/rights/rules", json={**RULE, field: value})
        assert refused.status_code in (400, 409), (field, refused.text)
        wide = await page.post("/api/rights/rules/remove", json={**RULE, field: value})
        assert wide.status_code in (400, 409) or wide.json() == {"removed": 0}, "a filter that selects more"
    for body in (
        {"entity": {}, "values": {"producer_byte_rate": 1}},
        {"entity": {"planet": "x"}, "values": {"producer_byte_rate": 1}},
        {"entity": {"user": "x"}, "values": {}},
        {"entity": {"user": "x"}, "values": {"producer_byte_rate": "much"}},
        {"entity": {"user": "x"}, "values": {"producer_byte_rate": True}},
        {"entity": {"user": "x"}, "values": {"producer_byte_rate": "inf"}},
        {"entity": {"user": "x"}, "values": {"producer_byte_rate": "nan"}},
        {"entity": {"user": "x"}, "values": {"no_such_thing": 1}},
        {"entity": {"user": "x"}, "values": {"producer_byte_rate": -1}},
    ):
        assert (await page.post("/api/rights/quotas", json=body)).status_code in (400, 409), body
    page.headers[TOKEN_HEADER] = "another's"
    changes: tuple[tuple[str, Any], ...] = (
        ("rules", RULE),
        ("rules/remove", RULE),
        ("quotas", {"entity": {"user": "x"}, "values": {"producer_byte_rate": 1}}),
    )
    for path, change in changes:
        assert (await page.post(f"/api/rights/{path}", json=change)).status_code == 403
    told = (await page.get("/api/rights")).json()
    assert (told["acls"], told["quotas"]) == ([], [])
