"""ACLs and quotas as the console changes them."""

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
    """The page of a broker with an authorizer."""
    with Broker(config={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}) as broker:
        cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}))
        await cluster.start()
        async with page_of(cluster) as page:
            yield page
        await cluster.close()


async def test_acls_and_quotas_are_added_and_removed(page: httpx.AsyncClient) -> None:
    other = {**RULE, "operation": "write"}
    for rule in (RULE, other):
        assert (await page.post("/api/acls", json=rule)).json() == {"done": True}
    assert (await page.get("/api/acls")).json() == {"acls": [RULE, other], "missing": None}
    assert (await page.post("/api/acls/remove", json=RULE)).json() == {"removed": 1}
    assert (await page.post("/api/acls/remove", json=RULE)).json() == {"removed": 0}
    assert (await page.get("/api/acls")).json()["acls"] == [other], "the one, and no other"
    # Kafka allows spaces in the names of groups and transactional ids.
    spaced = {**other, "resource": "group", "operation": "read", "name": " late "}
    assert (await page.post("/api/acls", json=spaced)).json() == {"done": True}
    assert spaced in (await page.get("/api/acls")).json()["acls"]
    assert (await page.post("/api/acls/remove", json=spaced)).json() == {"removed": 1}

    quota = {"entity": {"user": "anna", "client-id": None}, "values": {"producer_byte_rate": "1e6"}}
    assert (await page.post("/api/quotas", json=quota)).json() == {"done": True}
    (now,) = (await page.get("/api/quotas")).json()["quotas"]
    assert now == {"entity": quota["entity"], "values": {"producer_byte_rate": 1e6}}
    gone = {**quota, "values": {"producer_byte_rate": None}}
    assert (await page.post("/api/quotas", json=gone)).json() == {"done": True}
    assert (await page.get("/api/quotas")).json()["quotas"] == []


async def test_invalid_values_and_a_wrong_token_change_nothing(page: httpx.AsyncClient) -> None:
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
        refused = await page.post("/api/acls", json={**RULE, field: value})
        assert refused.status_code in (400, 409), (field, refused.text)
        wide = await page.post("/api/acls/remove", json={**RULE, field: value})
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
        assert (await page.post("/api/quotas", json=body)).status_code in (400, 409), body
    page.headers[TOKEN_HEADER] = "another's"
    changes: tuple[tuple[str, Any], ...] = (
        ("acls", RULE),
        ("acls/remove", RULE),
        ("quotas", {"entity": {"user": "x"}, "values": {"producer_byte_rate": 1}}),
    )
    for path, change in changes:
        assert (await page.post(f"/api/{path}", json=change)).status_code == 403
    assert (await page.get("/api/acls")).json()["acls"] == (await page.get("/api/quotas")).json()["quotas"] == []
