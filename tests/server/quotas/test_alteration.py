"""AlterClientQuotas and DescribeClientQuotas in every version: what is refused, what is stored where, what stays."""

from __future__ import annotations

import asyncio
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from tests.server.handled import handled

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from barnabas.server.apis.handlers import alter_client_quotas, describe_client_quotas
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.metadata.cluster_store import ClusterStore
from barnabas.server.metadata.config_store import ConfigStore
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.znodes import decode_config, encode_config
from barnabas.server.quotas.quota_managers import QuotaManagers
from barnabas.server.quotas.quota_settings import QuotaSettings
from barnabas.server.quotas.stored_quotas import stored_quotas

Name = str | None
PAIRS = tuple[tuple[str, Name], ...]
ANNA: PAIRS = (("user", "anna"),)
BOTH: PAIRS = (("client-id", "app~1/*"), ("user", "anna"))


class Plane:
    """A store and the quotas over it."""

    def __init__(self) -> None:
        self.store = EmbeddedStore(DataTree(lambda: 0))
        self.config_store = ConfigStore(self.store, now_ms=lambda: 0)
        self.quotas = self.anew()

    def anew(self) -> QuotaManagers:
        return QuotaManagers(BrokerConfig(), asyncio.get_running_loop(), lambda: 0.0)

    async def start(self) -> Plane:
        await ClusterStore(self.store, now_ms=lambda: 0, token_bytes=bytes).prepare()
        return self

    async def alter(
        self, *entries: tuple[PAIRS, dict[str, float | None]], validate_only: bool = False, version: int = 1
    ) -> list[tuple[ErrorCode, Name]]:
        data = [
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in pairs],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
            )
            for pairs, values in entries
        ]
        return await self.send(AlterClientQuotasRequest(entries=data, validate_only=validate_only), version)

    async def send(self, request: AlterClientQuotasRequest, version: int = 1) -> list[tuple[ErrorCode, Name]]:
        context: Any = SimpleNamespace(api_version=version, broker=self.parts())
        response = await handled(alter_client_quotas, context, request)
        body = b"".join(encode_response(response, version))
        read = decode_response(ApiKey.ALTER_CLIENT_QUOTAS, version, body, 0, len(body))
        named = [[(part.entity_type, part.entity_name) for part in entry.entity] for entry in read.entries]
        asked = [[(part.entity_type, part.entity_name) for part in entry.entity] for entry in request.entries]
        assert named == [sorted(entity, key=lambda part: part[0]) for entity in asked], "client-id before user"
        return [(ErrorCode(entry.error_code), entry.error_message) for entry in read.entries]

    def parts(self) -> Any:
        return SimpleNamespace(quota_settings=QuotaSettings(self.config_store, self.quotas, asyncio.Lock()))

    async def described(self) -> dict[PAIRS, dict[str, float]]:
        context: Any = SimpleNamespace(api_version=1, broker=self.parts())
        response = await handled(describe_client_quotas, context, DescribeClientQuotasRequest(components=[]))
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or []
        }

    async def node(self, path: str) -> dict[str, str]:
        return decode_config((await self.store.get(path))[0])


GOOD = [(ErrorCode.NONE, None)]


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_described_kept_and_removed(version: int) -> None:
    plane = await Plane().start()
    entities: list[PAIRS] = [
        ANNA,
        BOTH,
        (("client-id", None), ("user", None)),
        (("user", None),),
        (("client-id", "b"),),
    ]
    for number, entity in enumerate(entities, start=1):
        quotas: dict[str, float | None] = {"producer_byte_rate": 1000.0 * number, "request_percentage": 0.5 * number}
        assert await plane.alter((entity, quotas), version=version) == GOOD
    assert await plane.alter(((("ip", "10.0.0.9"),), {"connection_creation_rate": 3.0}), version=version) == GOOD
    described = await plane.described()
    assert set(described) == {*entities, (("ip", "10.0.0.9"),)}
    assert described[BOTH] == {"producer_byte_rate": 2000.0, "request_percentage": 1.0}
    assert await plane.node("/config/users/anna/clients/app%7E1%2F%2A") == {
        "producer_byte_rate": "2000",
        "request_percentage": "1.0",
    }
    assert await plane.node("/config/ips/10.0.0.9") == {"connection_creation_rate": "3"}
    again = plane.anew()
    async for entity_read, values in stored_quotas(plane.config_store):
        await again.changed(entity_read, values)
    for quotas_now in (plane.quotas, again):
        assert quotas_now.enforced
        assert quotas_now.produce.limits.find("anna", "app~1/*") == (2000.0, ("anna", "app~1/*"))
        assert quotas_now.connections.limits == {"10.0.0.9": 3.0}
    for entity in entities:
        removal: dict[str, float | None] = {"producer_byte_rate": None, "request_percentage": None}
        assert await plane.alter((entity, removal), version=version) == GOOD
    assert not plane.quotas.enforced
    assert set(await plane.described()) == {(("ip", "10.0.0.9"),)}


async def test_what_else_a_user_has_stays_and_what_is_not_named_too() -> None:
    plane = await Plane().start()
    await plane.store.create("/config/users/anna", encode_config({"SCRAM-SHA-256": "salt", "request_percentage": "7"}))
    await plane.quotas.changed(dict(ANNA), {"request_percentage": 7.0})
    assert await plane.alter((ANNA, {"consumer_byte_rate": 5.0})) == GOOD
    assert (await plane.described())[ANNA] == {"request_percentage": 7.0, "consumer_byte_rate": 5.0}
    assert plane.quotas.request.limits.find("anna", "") == (7.0, ("anna", None))
    assert await plane.alter((ANNA, {"consumer_byte_rate": None, "request_percentage": None})) == GOOD
    assert await plane.node("/config/users/anna") == {"SCRAM-SHA-256": "salt"}


async def test_an_entity_fails_with_all_its_quotas_and_without_the_others() -> None:
    plane = await Plane().start()
    bert: PAIRS = (("user", "bert"),)
    answers = await plane.alter(
        (ANNA, {"producer_byte_rate": 1.0, "consumer_byte_rate": 0.5}), (bert, {"producer_byte_rate": 2.0})
    )
    fraction = "consumer_byte_rate cannot be a fractional value."
    assert answers == [(ErrorCode.INVALID_REQUEST, fraction), (ErrorCode.NONE, None)]
    assert await plane.described() == {bert: {"producer_byte_rate": 2.0}}


async def test_nobody_is_named_twice_nor_is_a_quota() -> None:
    plane = await Plane().start()
    answers = await plane.alter(
        (BOTH, {"producer_byte_rate": 1.0}), (BOTH[::-1], {"producer_byte_rate": 2.0}), (ANNA, {})
    )
    assert [code for code, _ in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert "Ignoring duplicate entity" in str(answers[0][1])
    op = OpData(key="producer_byte_rate", value=1.0)
    entry = EntryData(entity=[EntityData(entity_type="user", entity_name="anna")], ops=[op, op])
    ((code, message),) = await plane.send(AlterClientQuotasRequest(entries=[entry]))
    assert code is ErrorCode.INVALID_REQUEST and str(message).startswith("Duplicate quota key producer_byte_rate")
    assert await plane.described() == {}


MANY = 20_000


class CountedName(str):
    """A name that notes how often it was compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        assert CountedName.compared < 10 * MANY, "the work grows faster than the number of entities"
        return str.__eq__(self, other)

    __hash__ = str.__hash__


async def test_many_entities_are_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = await Plane().start()
    monkeypatch.setattr(CountedName, "compared", 0)
    quotas: dict[str, float | None] = {"producer_byte_rate": 1.0}
    entries: list[tuple[PAIRS, dict[str, float | None]]] = [
        ((("client-id", CountedName(f"app-{number % (MANY - 1)}")),), quotas) for number in range(MANY)
    ]
    answers = await plane.alter(*entries, validate_only=True)
    assert CountedName.compared > 0
    assert [number for number, (code, _) in enumerate(answers) if code] == [0, MANY - 1], "the one named twice"


async def test_a_validation_changes_nothing() -> None:
    plane = await Plane().start()
    assert await plane.alter((ANNA, {"producer_byte_rate": 1.0}), validate_only=True) == GOOD
    ((code, _),) = await plane.alter((ANNA, {"producer_byte_rate": -1.0}), validate_only=True)
    assert code is ErrorCode.INVALID_REQUEST
    assert await plane.described() == {} and not plane.quotas.enforced


async def test_hosts_are_addresses_or_have_some() -> None:
    plane = await Plane().start()
    rate: dict[str, float | None] = {"connection_creation_rate": 4.0}
    no_host = "no such host.invalid"
    answers = await plane.alter(
        ((("ip", "localhost"),), rate),
        ((("ip", "2001:DB8::0:1"),), rate),
        ((("ip", None),), rate),
        ((("ip", no_host),), rate),
    )
    refused = (ErrorCode.INVALID_REQUEST, f"{no_host} is not a valid IP or resolvable host.")
    assert answers == [*GOOD * 3, refused]
    assert {"127.0.0.1", "2001:db8::1", None} <= plane.quotas.connections.limits.keys()
    assert not plane.quotas.enforced, "connections are none of a request's business"
    answers = await plane.alter(
        ((("ip", "localhost"),), {"connection_creation_rate": None}),
        ((("ip", None),), {"connection_creation_rate": None}),
    )
    assert plane.quotas.connections.limits == {"2001:db8::1": 4.0}


@pytest.mark.parametrize("host", ["a..b", "\x00", "a\nb", "é" * 70, "x" * 300, ".", "[::1]z", "1.2.3.4/24", "\ud7ff"])
async def test_what_no_host_can_be_called_is_refused(host: str) -> None:
    plane = await Plane().start()
    refused = (ErrorCode.INVALID_REQUEST, f"{host} is not a valid IP or resolvable host.")
    assert await plane.alter(((("ip", host),), {"connection_creation_rate": 4.0})) == [refused]


async def test_a_host_whose_address_nobody_tells_is_given_up_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane = await Plane().start()
    asked = asyncio.Event()

    async def never(host: str, port: None) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    monkeypatch.setattr("barnabas.server.quotas.quota_managers.RESOLVE_SECONDS", 0.2)
    waiting = asyncio.ensure_future(plane.alter(((("ip", "far.away"),), {"connection_creation_rate": 4.0})))
    await asked.wait()
    assert await plane.alter((ANNA, {"consumer_byte_rate": 5.0})) == GOOD
    assert not waiting.done()
    assert [code for code, _ in await waiting] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("count", range(1, 5))
async def test_quotas_are_told_in_the_order_that_kafka_has(count: int) -> None:
    """As Kafka 4.1.1 was seen to tell them: all four not as three."""
    few = ["consumer_byte_rate", "controller_mutation_rate", "request_percentage", "producer_byte_rate"]
    for told in combinations(few, count) if count < len(few) else [(few[-1], *few[:-1])]:
        plane = await Plane().start()
        quotas: dict[str, float | None] = dict.fromkeys(sorted(told, reverse=True), 3.0)
        assert await plane.alter(((("user", "a"), ("client-id", "b")), quotas)) == GOOD
        ((entity, values),) = (await plane.described()).items()
        assert entity == (("client-id", "b"), ("user", "a"))
        assert tuple(values) == tuple(told)


async def test_a_stored_quota_that_is_no_number_is_left_out() -> None:
    plane = await Plane().start()
    await plane.store.create("/config/clients/a", encode_config({"producer_byte_rate": "much"}))
    assert await plane.described() == {}
