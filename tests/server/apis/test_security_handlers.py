"""Quotas, credentials, rules of access and transactions as a broker without any of them answers, in every version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.server.handled import handled

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas.server.apis.handlers import (
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from barnabas.server.metadata.config_store import ConfigStore
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_store import Create, Stat, Watch
from barnabas.server.metadata.scram_store import ScramStore
from barnabas.server.metadata.znodes import encode_config
from barnabas.server.quotas.quota_settings import QuotaSettings
from barnabas.server.runtime.loop_sharing import ITEMS_PER_TURN
from barnabas.server.security.scram_credentials import ScramCredentials

if TYPE_CHECKING:
    from barnabas.server.quotas.quota_managers import QuotaManagers

EXACT, DEFAULT, ANY = 0, 1, 2
Entities = list[dict[str, str | None]]

QUOTAS = {
    "/config/users/anna": {
        "producer_byte_rate": "1024.5",
        "SCRAM-SHA-256": "salt=a,stored_key=b,server_key=c,iterations=4096",
    },
    "/config/users/%C3%A4%20b": {"SCRAM-SHA-512": "salt=a,stored_key=b==,server_key=c,iterations=8192"},
    "/config/users/<default>": {"request_percentage": "50"},
    "/config/users/anna/clients": None,
    "/config/users/anna/clients/app": {"consumer_byte_rate": "7"},
    "/config/users/anna/clients/<default>": {"consumer_byte_rate": "8"},
    "/config/clients/app": {"producer_byte_rate": "9"},
    "/config/clients/none": {},
    "/config/ips/10.0.0.1": {"connection_creation_rate": "3"},
}


async def tree() -> EmbeddedStore:
    """A tree as Apache Kafka would have it."""
    store = EmbeddedStore(DataTree(lambda: 0))
    for path in ("/config", "/config/users", "/config/clients", "/config/ips"):
        await store.create(path)
    for path, config in QUOTAS.items():
        await store.create(path, b"" if config is None else encode_config(config))
    return store


def context(version: int, store: EmbeddedStore | None = None) -> Any:
    if store is None:
        return SimpleNamespace(api_version=version, broker=SimpleNamespace(acl_authorizer=None))
    changing, configs, quotas = asyncio.Lock(), ConfigStore(store, now_ms=lambda: 0), cast("QuotaManagers", None)
    broker = SimpleNamespace(
        scram_credentials=ScramCredentials(ScramStore(configs), changing),
        quota_settings=QuotaSettings(configs, quotas, changing),
    )
    return SimpleNamespace(api_version=version, broker=broker)


def passed(key: ApiKey, version: int, response: Any) -> Any:
    """The response as a client reads it."""
    data = b"".join(encode_response(response, version))
    return decode_response(key, version, data, 0, len(data))


Components = tuple[tuple[str, int, str | None], ...]


async def answered(components: Components, strict: bool, version: int) -> Any:
    asked = [ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components]
    request = DescribeClientQuotasRequest(components=asked, strict=strict)
    response = await handled(describe_client_quotas, context(version, await tree()), request)
    return passed(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, response)


async def described(*components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Entities:
    read = await answered(components, strict, version)
    assert read.error_code == ErrorCode.NONE
    return [{part.entity_type: part.entity_name for part in entry.entity} for entry in read.entries]


@pytest.mark.parametrize("version", [0, 1])
async def test_a_filter_without_components_means_all_quotas(version: int) -> None:
    entities = await described(version=version)
    assert sorted(map(str, entities)) == sorted(
        map(
            str,
            [
                {"user": "anna"},
                {"user": None},
                {"client-id": "app", "user": "anna"},
                {"client-id": None, "user": "anna"},
                {"client-id": "app"},
                {"ip": "10.0.0.1"},
            ],
        )
    )


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], True, []),
        ([("user", EXACT, "anna")], True, [{"user": "anna"}]),
        ([("user", EXACT, "anna"), ("client-id", EXACT, "app")], False, [{"client-id": "app", "user": "anna"}]),
        ([("user", DEFAULT, None)], False, [{"user": None}]),
        ([("user", ANY, None), ("client-id", DEFAULT, None)], True, [{"client-id": None, "user": "anna"}]),
        ([("client-id", ANY, None)], True, [{"client-id": "app"}]),
        ([("ip", ANY, None)], False, [{"ip": "10.0.0.1"}]),
        ([("user", EXACT, "nobody")], False, []),
    ],
)
async def test_components_and_strictness(components: Any, strict: bool, found: Entities) -> None:
    assert await described(*components, strict=strict) == found


async def test_a_filter_that_is_not_strict_takes_further_entity_types() -> None:
    assert [sorted(entity) for entity in await described(("user", EXACT, "anna"))] == [
        ["user"],
        ["client-id", "user"],
        ["client-id", "user"],
    ]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, "a"), ("ip", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
async def test_a_filter_that_cannot_be(components: Any, code: ErrorCode, version: int) -> None:
    read = await answered(components, False, version)
    assert (read.error_code, read.entries) == (code, None)
    assert read.error_message


async def credentials(users: list[str] | None) -> list[tuple[str, int, list[tuple[int, int]]]]:
    asked = None if users is None else [UserName(name=name) for name in users]
    request = DescribeUserScramCredentialsRequest(users=asked)
    response = await handled(describe_user_scram_credentials, context(0, await tree()), request)
    read = passed(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, response)
    return [
        (one.user, one.error_code, [(info.mechanism, info.iterations) for info in one.credential_infos])
        for one in read.results
    ]


async def test_credentials_of_users() -> None:
    all_users = [("anna", ErrorCode.NONE, [(1, 4096)]), ("ä b", ErrorCode.NONE, [(2, 8192)])]
    assert await credentials(None) == await credentials([]) == all_users
    assert await credentials(["anna", "nobody", "twice", "twice"]) == [
        ("anna", ErrorCode.NONE, [(1, 4096)]),
        ("nobody", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("twice", ErrorCode.DUPLICATE_RESOURCE, []),
    ]


class CountedStore(EmbeddedStore):
    """Counts what is read of it."""

    reads = 0

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        self.reads += 1
        return await super().get(path, watch)


async def crowd(count: int) -> CountedStore:
    """So many users with quotas and credentials."""
    store = CountedStore(DataTree(lambda: 0))
    for path in ("/config", "/config/users", "/config/clients", "/config/ips"):
        await store.create(path)
    data = encode_config(QUOTAS["/config/users/anna"] or {})
    await store.multi([Create(f"/config/users/u{number:04d}", data) for number in range(count)])
    return store


async def read_turn_by_turn(store: CountedStore, answer: Any, between: Callable[[], Awaitable[object]]) -> Any:
    """What a handler answers that reads no more than is to be read in one turn; after the first comes `between`."""
    task = asyncio.get_running_loop().create_task(answer)
    await asyncio.sleep(0)
    await between()
    while not task.done():
        before = store.reads
        await asyncio.sleep(0)
        assert store.reads - before <= ITEMS_PER_TURN
    return await task


async def test_quotas_of_many_are_read_in_turns_and_some_are_gone_meanwhile() -> None:
    """A broker alone has its metadata in memory: reading it waits for nothing, and would let nobody else be served."""
    store = await crowd(1000)
    request = DescribeClientQuotasRequest(components=[])
    answer = handled(describe_client_quotas, context(1, store), request)
    response = await read_turn_by_turn(store, answer, lambda: store.delete("/config/users/u0999"))
    assert [entry.entity[0].entity_name for entry in response.entries] == [f"u{number:04d}" for number in range(999)]


async def test_credentials_of_many_are_read_in_turns_and_some_are_gone_meanwhile() -> None:
    store = await crowd(1000)
    request = DescribeUserScramCredentialsRequest(users=[])
    answer = handled(describe_user_scram_credentials, context(0, store), request)
    response = await read_turn_by_turn(store, answer, lambda: store.delete("/config/users/u0999"))
    assert [result.user for result in response.results] == [f"u{number:04d}" for number in range(999)]
    assert not any(result.error_code for result in response.results)


async def test_who_asks_for_one_user_has_no_other_read() -> None:
    store = await crowd(1000)
    request = DescribeUserScramCredentialsRequest(users=[UserName(name="u0500"), UserName(name="")])
    response = await handled(describe_user_scram_credentials, context(0, store), request)
    found = [(result.user, result.error_code) for result in response.results]
    assert found == [("u0500", ErrorCode.NONE), ("", ErrorCode.RESOURCE_NOT_FOUND)]
    assert store.reads == 1


@pytest.mark.parametrize("version", range(4))
async def test_without_an_authorizer_security_is_disabled(version: int) -> None:
    ctx = context(version)
    answer = passed(ApiKey.DESCRIBE_ACLS, version, await handled(describe_acls, ctx, DescribeAclsRequest()))
    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
    created = await handled(create_acls, ctx, CreateAclsRequest(creations=[AclCreation(), AclCreation()]))
    answer = passed(ApiKey.CREATE_ACLS, version, created)
    assert [result.error_code for result in answer.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = await handled(delete_acls, ctx, DeleteAclsRequest(filters=[DeleteAclsFilter()]))
    answer = passed(ApiKey.DELETE_ACLS, version, deleted)
    assert [result.error_code for result in answer.filter_results] == [ErrorCode.SECURITY_DISABLED]
