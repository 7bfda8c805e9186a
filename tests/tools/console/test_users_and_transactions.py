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


async def test_an_open_transaction_has_an_age_and_is_aborted(broker: Broker, page: httpx.AsyncClient) -> None:
    broker.create_topic("t", 30)

    async def row() -> dict[str, Any]:
        (found,) = (await done(await page.get("/api/transactions")))["transactions"]
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
                after = await done(await page.get("/api/transactions"))
                assert after["transactions"][0]["age"] is None, "the abort is complete when the response arrives"
                await producer.send_and_wait("t", b"after the abort")
    text = [record.value for record in broker.records("t")]
    assert text == [b"before"], "records of the aborted transaction are not committed"
    refused = await page.post("/api/transactions/abort", json={"id": "mine"})
    assert refused.status_code == 400 and "no open transaction" in refused.text
    refused = await page.post("/api/transactions/abort", json={"id": "unknown"})
    assert refused.status_code == 409 and "TRANSACTIONAL_ID_NOT_FOUND" in refused.text
    assert [one["id"] for one in (await done(await page.get("/api/transactions")))["transactions"]] == ["mine"]
    for body in ({}, {"id": 7}, {"id": ""}):
        assert (await page.post("/api/transactions/abort", json=body)).status_code == 400
    assert (await page.post("/api/transactions/abort-hanging", json={"topic": "t"})).status_code == 400
    async with Admin(broker.bootstrap) as admin:
        (outcome,) = (await admin.fence_producers(["mine"])).values()
        assert outcome is None
