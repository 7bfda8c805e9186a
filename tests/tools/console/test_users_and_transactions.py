"""The pages of users and of transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from barnabas import Broker
from barnabas.clients import Admin, Producer
from barnabas.protocol.errors import KafkaError


async def done(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_users_are_added_and_their_passwords_removed(page: httpx.AsyncClient) -> None:
    user = {"name": "anna", "mechanism": "SCRAM-SHA-512", "password": "secret"}
    await done(await page.post("/api/users", json=user))
    await done(await page.post("/api/users", json={**user, "mechanism": "SCRAM-SHA-256", "iterations": "8192"}))
    quota = {"entity": {"user": "anna"}, "values": {"producer_byte_rate": 1e6}}
    await done(await page.post("/api/quotas", json=quota))
    await done(await page.post("/api/quotas", json={**quota, "entity": {"user": "berta"}}))
    listed = await done(await page.get("/api/users"))
    assert listed["users"] == [
        {
            "name": "anna",
            "credentials": [["SCRAM-SHA-256", 8192], ["SCRAM-SHA-512", 4096]],
            "quotas": {"producer_byte_rate": 1e6},
            "acls": 0,
        },
        {"name": "berta", "credentials": [], "quotas": {"producer_byte_rate": 1e6}, "acls": 0},
    ]
    assert "secret" not in (await page.get("/api/users")).text
    for wrong in (
        {"name": ""},
        {"name": 7},
        {"password": ""},
        {"password": None},
        {"password": "x" * 5000},
        {"mechanism": "PLAIN"},
        {"iterations": 1},
        {"iterations": 1_000_000},
        {"iterations": "many"},
    ):
        refused = await page.post("/api/users", json={**user, **wrong})
        assert refused.status_code == 400, (wrong, refused.text)
        assert "secret" not in refused.text
    await done(await page.post("/api/users/remove", json={"name": "anna", "mechanism": "SCRAM-SHA-256"}))
    assert (await done(await page.get("/api/users")))["users"][0]["credentials"] == [["SCRAM-SHA-512", 4096]]
    refused = await page.post("/api/users/remove", json={"name": "anna", "mechanism": "SCRAM-SHA-256"})
    assert refused.status_code == 409 and "RESOURCE_NOT_FOUND" in refused.text


async def test_a_list_of_users_is_limited_and_searched(page: httpx.AsyncClient) -> None:
    for name in ("Limit-1", "limit-2", "limit-3"):
        quota = {"entity": {"user": name}, "values": {"producer_byte_rate": 1e6}}
        await done(await page.post("/api/quotas", json=quota))

    async def listed(**parameters: str) -> tuple[list[str], int]:
        found = await done(await page.get("/api/users", params={"search": "LIMIT-", **parameters}))
        return [one["name"] for one in found["users"]], found["total"]

    async with asyncio.timeout(60):
        while (await listed())[1] < 3:  # a response is shared for a second
            await asyncio.sleep(0.05)
    assert await listed() == (["Limit-1", "limit-2", "limit-3"], 3)
    assert await listed(limit="2") == (["Limit-1", "limit-2"], 3)
    assert await listed(limit="2", search="t-3") == (["limit-3"], 1)
    assert await listed(search="nobody") == ([], 0)
    for limit in ("0", "-1", "100001", "1e3", "", "9" * 5000):
        refused = await page.get("/api/users", params={"limit": limit})
        assert refused.status_code == 400 and "limit: expected a number" in refused.text


async def test_a_list_of_transactions_is_limited_and_filtered(page: httpx.AsyncClient, broker: Broker) -> None:
    broker.create_topic("limited", 1)

    async def listed(**parameters: str) -> tuple[list[str], int]:
        found = await done(await page.get("/api/transactions", params={"search": "limited-", **parameters}))
        return [one["id"] for one in found["transactions"]], found["total"]

    for number in range(2):
        async with (
            Producer(broker.bootstrap, transactional_id=f"limited-{number}") as producer,
            producer.transaction(),
        ):
            await producer.send_and_wait("limited", b"v")
    async with (
        asyncio.timeout(60),
        Producer(broker.bootstrap, transactional_id="limited-2") as producer,
        producer.transaction(),
    ):
        await producer.send_and_wait("limited", b"v")
        while (await listed(open="1"))[1] != 1:
            await asyncio.sleep(0.05)
        assert await listed(open="1") == (["limited-2"], 1)
        assert await listed(limit="1") == (["limited-0"], 3)
        assert await listed(search="limited-1") == (["limited-1"], 1)
        assert (await done(await page.get("/api/transactions")))["open"] == 1
    refused = await page.get("/api/transactions", params={"limit": "0"})
    assert refused.status_code == 400


async def test_an_open_transaction_has_an_age_and_is_aborted(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("t", 30)

    async def row() -> dict[str, Any]:
        (found,) = (await done(await page.get("/api/transactions?search=mine")))["transactions"]
        return dict(found)

    async with asyncio.timeout(60), Producer(broker.bootstrap, transactional_id="mine") as producer:
        async with producer.transaction():
            await producer.send_and_wait("t", b"before", partition=0)
        with pytest.raises(KafkaError):
            async with producer.transaction():
                for partition in range(25):
                    await producer.send_and_wait("t", b"v", partition=partition)
                while (found := await row())["state"] != "Ongoing":
                    await asyncio.sleep(0.05)
                assert (found["id"], found["timeout"], found["partition_count"]) == ("mine", 60_000, 25)
                assert 0 <= found["age"] < 60_000 and len(found["partitions"]) == 20
                assert (await done(await page.get("/api/transactions/hanging?minutes=0")))["transactions"] == []
                live = {"topic": "t", "partition": 0, "start_offset": 2}
                refused = await page.post("/api/transactions/abort-hanging", json=live)
                assert refused.status_code == 400 and "no hanging transaction" in refused.text
                await done(await page.post("/api/transactions/abort", json={"id": "mine"}))
                after = await done(await page.get("/api/transactions?search=mine"))
                assert after["transactions"][0]["age"] is None, "the abort is complete when the response arrives"
                await producer.send_and_wait("t", b"after the abort")
    text = [record.value for record in broker.records("t")]
    assert text == [b"before"], "records of the aborted transaction are not committed"
    refused = await page.post("/api/transactions/abort", json={"id": "mine"})
    assert refused.status_code == 400 and "no open transaction" in refused.text
    refused = await page.post("/api/transactions/abort", json={"id": "unknown"})
    assert refused.status_code == 409 and "TRANSACTIONAL_ID_NOT_FOUND" in refused.text
    assert [one["id"] for one in (await done(await page.get("/api/transactions?search=n")))["transactions"]] == ["mine"]
    for body in ({}, {"id": 7}, {"id": ""}):
        assert (await page.post("/api/transactions/abort", json=body)).status_code == 400
    assert (await page.post("/api/transactions/abort-hanging", json={"topic": "t"})).status_code == 400
    async with Admin(broker.bootstrap) as admin:
        (outcome,) = (await admin.fence_producers(["mine"])).values()
        assert outcome is None
