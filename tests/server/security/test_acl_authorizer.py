"""Rules in the metadata tree: Kafka's layout, changes of other brokers, and the three APIs about them."""

from __future__ import annotations

import asyncio
import json
import logging
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest
from tests.server.data_plane import PAGE_CACHE, DataPlane, play
from tests.server.simulated_store import SimulatedStore

from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.apis.handlers import create_acls
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.config.listeners import ListenerConfig
from barnabas.server.metadata import acl_store, store_follower
from barnabas.server.metadata.acl_store import AclStore, acl_path, encode_acls
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_store import StoreUnavailableError, Watch
from barnabas.server.runtime.host import ThreadWork
from barnabas.server.runtime.log_limit import LINES, MAX_CAUSES
from barnabas.server.security.acl_authorizer import AclAuthorizer
from barnabas.server.security.authorizer import KAFKA_AUTHORIZERS, create_authorizer
from barnabas.server.security.session import KafkaPrincipal, Session

Op, T, P = AclOperation, AclResourceType, AclPermissionType
PREFIXED = AclPatternType.PREFIXED
ANNA, BEN = KafkaPrincipal("User", "anna"), KafkaPrincipal("User", "ben")
READ_T = AclBinding(ResourcePattern(T.TOPIC, "t"), AccessControlEntry("User:anna", "*", Op.READ, P.ALLOW))
LISTENER = ListenerConfig("PLAINTEXT", "127.0.0.1", 0)


def session(principal: KafkaPrincipal = ANNA, host: str = "10.0.0.1") -> Session:
    return Session(host, LISTENER, principal)


async def authorizer(tree: DataTree, **options: Any) -> tuple[AclAuthorizer, EmbeddedStore]:
    store = EmbeddedStore(tree)
    made = AclAuthorizer(AclStore(store, now_ms=lambda: 0), asyncio.get_running_loop(), **options)
    await made.start()
    return made, store


async def test_long_names_that_somebody_asks_for_are_not_remembered() -> None:
    """A client may name what it likes, in 32 KB a name, as often as it likes."""
    guard, _ = await authorizer(DataTree(lambda: 0))
    prefix = AclBinding(ResourcePattern(T.GROUP, "g", PREFIXED), READ_T.entry)
    await guard.create([prefix])
    tracemalloc.start()
    try:
        for number in range(1000):
            assert guard.authorize(session(), Op.READ, T.GROUP, f"g{number}".ljust(30_000, "x"))
            assert not guard.authorize(session(), Op.READ, T.TOPIC, f"t{number}".ljust(30_000, "x"))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


async def test_however_many_are_denied_something_the_log_is_not_filled(caplog: pytest.LogCaptureFixture) -> None:
    """Where tokens are believed whatever they say, a stranger is as many principals as it likes."""
    guard, _ = await authorizer(DataTree(lambda: 0))
    many = [session(KafkaPrincipal("User", f"{number}")) for number in range(2 * MAX_CAUSES)]
    with caplog.at_level(logging.INFO, "barnabas.authorizer"):
        for one in many * 3:
            assert not guard.authorize(one, Op.READ, T.TOPIC, "t")
    assert len(caplog.records) == 3 * MAX_CAUSES + LINES
    await guard.close()


async def test_the_nodes_are_kafkas() -> None:
    guard, store = await authorizer(DataTree(lambda: 0))
    denied = AclBinding(
        ResourcePattern(T.TRANSACTIONAL_ID, "app-", PREFIXED),
        AccessControlEntry("User:*", "10.0.0.1", Op.IDEMPOTENT_WRITE, P.DENY),
    )
    await guard.create([READ_T, denied])
    data, _ = await store.get("/kafka-acl/Topic/t")
    allowed = {"principal": "User:anna", "permissionType": "Allow", "operation": "Read", "host": "*"}
    assert json.loads(data) == {"version": 1, "acls": [allowed]}
    data, _ = await store.get("/kafka-acl-extended/prefixed/TransactionalId/app-")
    assert json.loads(data)["acls"] == [
        {"principal": "User:*", "permissionType": "Deny", "operation": "IdempotentWrite", "host": "10.0.0.1"}
    ]
    assert (await store.get("/kafka-acl-changes/acl_changes_0000000000"))[0] == b"TOPIC:t"
    data, _ = await store.get("/kafka-acl-extended-changes/acl_changes_0000000000")
    assert json.loads(data) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "app-",
        "patternType": "PREFIXED",
    }
    assert sorted(await store.children("/kafka-acl")) == sorted(
        ["Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"]
    )
    await guard.delete([READ_T])
    assert await store.exists("/kafka-acl/Topic/t") is None
    await guard.close()


async def test_many_rules_are_stored_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write to the disk for each of ten thousand would take ten seconds."""
    work = ThreadWork(asyncio.get_running_loop())
    store = EmbeddedStore.open(str(tmp_path / "metadata.db"), now_ms=lambda: 0, work=work)
    guard = AclAuthorizer(AclStore(store, now_ms=lambda: 0), asyncio.get_running_loop())
    await guard.start()
    rounds: list[int] = []
    begin = store.request_processor._begin_round

    def counted() -> None:
        rounds.append(len(store.request_processor._waiting))
        begin()

    monkeypatch.setattr(store.request_processor, "_begin_round", counted)
    rules = [AclBinding(ResourcePattern(T.TOPIC, f"t-{number}"), READ_T.entry) for number in range(500)]
    assert not await guard.create(rules)
    assert all(guard.authorize(session(), Op.READ, T.TOPIC, rule.pattern.name) for rule in rules)
    assert len(rounds) <= 50
    rounds.clear()
    await guard.delete(rules)
    assert not guard.authorize(session(), Op.READ, T.TOPIC, "t-499")
    assert len(rounds) <= 50
    await guard.close()
    await store.close()
    work.close()


async def test_a_node_of_rules_does_not_outgrow_what_zookeeper_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    guard, store = await authorizer(DataTree(lambda: 0))
    rules = [AclBinding(READ_T.pattern, READ_T.entry._replace(principal=f"User:{number}")) for number in range(20)]
    assert not await guard.create(rules[:10])
    size = len((await store.get("/kafka-acl/Topic/t"))[0])
    monkeypatch.setattr(acl_store, "MAX_BYTES", size - 1)
    other = AclBinding(ResourcePattern(T.TOPIC, "u"), READ_T.entry)
    failed = await guard.create([rules[10], other])
    assert [type(error) for error in failed.values()] == [acl_store.TooManyRulesError]
    assert str(failed[READ_T.pattern]) == f"the ACLs of t would take more than {size - 1} bytes"
    assert not guard.authorize(session(KafkaPrincipal("User", "10")), Op.READ, T.TOPIC, "t")
    assert guard.authorize(session(), Op.READ, T.TOPIC, "u"), "another pattern's rule counts"
    await guard.delete(rules[:1])
    assert not guard.authorize(session(KafkaPrincipal("User", "0")), Op.READ, T.TOPIC, "t"), "less is always possible"
    await guard.close()


async def test_a_request_makes_as_many_rules_as_with_kafka_at_most() -> None:
    guard, _ = await authorizer(DataTree(lambda: 0))
    request = CreateAclsRequest(creations=[AclCreation()] * (create_acls.MAX_RULES + 1))
    with pytest.raises(KafkaError) as refused:
        await create_acls.handle(cast(Any, None), request, acl_authorizer=guard)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    await guard.close()


async def test_a_rule_that_cannot_be_stored_keeps_no_other_away() -> None:
    guard, store = await authorizer(DataTree(lambda: 0))
    await store.create("/kafka-acl/Topic/damaged", b"no rules")
    damaged, sound = (ResourcePattern(T.TOPIC, name) for name in ("damaged", "sound"))
    failed = await guard.create([AclBinding(one, READ_T.entry) for one in (damaged, sound)])
    assert list(failed) == [damaged]
    assert guard.authorize(session(), Op.READ, T.TOPIC, "sound")
    assert not guard.authorize(session(), Op.READ, T.TOPIC, "damaged")
    await guard.close()


@pytest.mark.parametrize("notice", [b"TRANSACTIONAL_ID:t", b"TransactionalId:t"])
async def test_news_of_every_release_is_understood(notice: bytes) -> None:
    tree = DataTree(lambda: 0)
    guard, store = await authorizer(tree)
    pattern = ResourcePattern(T.TRANSACTIONAL_ID, "t")
    rules = encode_acls(pattern, [AccessControlEntry("User:anna", "*", Op.WRITE, P.ALLOW)])
    await store.create("/kafka-acl/TransactionalId/t", rules)
    await store.create("/kafka-acl-changes/acl_changes_", notice, sequential=True)
    async with asyncio.timeout(60):
        while not guard.authorize(session(), Op.WRITE, T.TRANSACTIONAL_ID, "t"):
            await asyncio.sleep(0.01)
    # And by a broker that starts after that.
    late, _ = await authorizer(tree)
    assert late.authorize(session(), Op.WRITE, T.TRANSACTIONAL_ID, "t")
    await guard.close()
    await late.close()


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", ".", "..", "ä", "a\x01", "/"])
async def test_any_name_has_a_node_of_its_own(name: str) -> None:
    tree = DataTree(lambda: 0)
    guard, _ = await authorizer(tree)
    pattern = ResourcePattern(T.GROUP, name)
    await guard.create([AclBinding(pattern, READ_T.entry)])
    await guard.create([AclBinding(ResourcePattern(T.GROUP, "a/b"), READ_T.entry)])
    await guard.close()
    again, _ = await authorizer(tree)
    assert {found.pattern.name for found in await again.selected(AclBindingFilter())} == {name, "a/b"}
    assert again.authorize(session(), Op.READ, T.GROUP, name)
    await again.close()


async def test_what_another_broker_changes_counts_here_too() -> None:
    tree = DataTree(lambda: 0)
    one, _ = await authorizer(tree)
    other, _ = await authorizer(tree)
    assert not other.authorize(session(), Op.READ, T.TOPIC, "t")
    for allowed in (True, False, True):
        await (one.create([READ_T]) if allowed else one.delete([READ_T]))
        await until_allowed(other, allowed)
        assert other.authorize(session(), Op.DESCRIBE, T.TOPIC, "t") is allowed
    await one.close()
    await other.close()


async def until_allowed(guard: AclAuthorizer, allowed: bool = True, name: str = "t") -> None:
    async with asyncio.timeout(60):
        while guard.authorize(session(), Op.READ, T.TOPIC, name) is not allowed:
            await asyncio.sleep(0.01)


async def test_what_is_damaged_keeps_no_other_change_away() -> None:
    tree = DataTree(lambda: 0)
    one, store = await authorizer(tree)
    other, _ = await authorizer(tree)
    await one.create([AclBinding(ResourcePattern(T.TOPIC, "damaged"), READ_T.entry)])
    await until_allowed(other, name="damaged")
    await store.set("/kafka-acl/Topic/damaged", b"no rules")
    for notice in (b"NOTHING:t", b"\xff", b"TOPIC:damaged"):
        await store.create("/kafka-acl-changes/acl_changes_", notice, sequential=True)
    for notice in (b"ANY:t", b"TOPIC:", b"TOPIC:.", b"TOPIC:\0"):
        await store.create("/kafka-acl-changes/acl_changes_", notice, sequential=True)
    for kind, name, pattern_type in (
        (1, "t", "PREFIXED"),
        ("ANY", "t", "PREFIXED"),
        ("TOPIC", 1, "PREFIXED"),
        ("TOPIC", ["t"], "PREFIXED"),
        ("TOPIC", None, "PREFIXED"),
        ("TOPIC", "t", "MATCH"),
    ):
        notice = json.dumps({"resourceType": kind, "name": name, "patternType": pattern_type}).encode()
        await store.create("/kafka-acl-extended-changes/acl_changes_", notice, sequential=True)
    await store.create("/kafka-acl-extended-changes/acl_changes_", b'["resourceType"]', sequential=True)
    await store.create("/kafka-acl-changes/zzz", b"TOPIC:t")
    for allowed in (True, False):
        await (one.create([READ_T]) if allowed else one.delete([READ_T]))
        await until_allowed(other, allowed)
    assert other.authorize(session(), Op.READ, T.TOPIC, "damaged")
    await one.close()
    await other.close()


async def test_the_next_session_knows_what_has_no_notice_any_more() -> None:
    tree = DataTree(lambda: 0)
    one, store = await authorizer(tree)
    away = SimulatedStore(tree)
    other = AclAuthorizer(AclStore(away, now_ms=lambda: 0), asyncio.get_running_loop())
    await other.start()
    await one.create([READ_T])
    await until_allowed(other)
    away.expire()
    await one.delete([READ_T])
    await one.create([AclBinding(ResourcePattern(T.TOPIC, "u"), READ_T.entry)])
    for name in await store.children("/kafka-acl-changes"):
        await store.delete(f"/kafka-acl-changes/{name}")
    away.renew()
    await until_allowed(other, False)
    await until_allowed(other, name="u")
    await one.close()
    await other.close()


async def test_a_store_that_was_away_for_a_moment_is_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_follower, "RETRY_SECONDS", 0.001)
    tree = DataTree(lambda: 0)
    one, _ = await authorizer(tree)
    other, store = await authorizer(tree)
    children, failures = store.children, [StoreUnavailableError("/")] * 2

    async def failing(path: str, watch: Watch | None = None) -> list[str]:
        if failures:
            raise failures.pop()
        return await children(path, watch)

    monkeypatch.setattr(store, "children", failing)
    for allowed in (True, False):
        await (one.create([READ_T]) if allowed else one.delete([READ_T]))
        await until_allowed(other, allowed)
    assert not failures
    await one.close()
    await other.close()


async def test_a_node_that_holds_no_rules_keeps_the_broker_from_starting() -> None:
    """To leave out what denies would let somebody in."""
    tree = DataTree(lambda: 0)
    guard, store = await authorizer(tree)
    await guard.close()
    await store.create("/kafka-acl/Topic/t", b'{"version":1,"acls":[{"principal":"User:anna"}]}')
    with pytest.raises(ValueError, match="not a list of ACLs"):
        await authorizer(tree)


async def test_super_users_and_what_no_rule_is_about() -> None:
    guard, _ = await authorizer(DataTree(lambda: 0), super_users=["User:ben"], allow_if_no_acl=True)
    assert guard.authorize(session(BEN), Op.ALTER, T.CLUSTER, "kafka-cluster")
    assert guard.authorize(session(), Op.READ, T.TOPIC, "free") and guard.authorize_some(session(), Op.WRITE, T.TOPIC)
    deny = AccessControlEntry("User:*", "*", Op.ALL, P.DENY)
    await guard.create([READ_T, AclBinding(ResourcePattern(T.TOPIC, "*"), deny)])
    assert not guard.authorize(session(), Op.READ, T.TOPIC, "t")
    assert not guard.authorize_some(session(), Op.WRITE, T.TOPIC)
    assert guard.authorize(session(BEN), Op.READ, T.TOPIC, "t") and guard.authorize_some(
        session(BEN), Op.WRITE, T.TOPIC
    )
    await guard.close()


def test_which_authorizer_a_configuration_names() -> None:
    store = AclStore(EmbeddedStore(DataTree(lambda: 0)), now_ms=lambda: 0)
    loop = asyncio.new_event_loop()

    def named(name: str, **more: str) -> Any:
        settings = {"authorizer.class.name": name} | {key.replace("_", "."): value for key, value in more.items()}
        return create_authorizer(BrokerConfig(settings), store, loop)

    assert named("") is None
    for name in KAFKA_AUTHORIZERS:
        assert isinstance(named(name, super_users="User:a; User:CN=b,O=c"), AclAuthorizer)
    with pytest.raises(ConfigError, match=r"no installed package has an entry point"):
        named("org.example.Guard")
    for users in ("anna", "User:", ":a"):
        with pytest.raises(ConfigError, match="expected a list like"):
            named(KAFKA_AUTHORIZERS[-1], super_users=users)
    with pytest.raises(ConfigError, match="either true or false"):
        named(KAFKA_AUTHORIZERS[-1], allow_everyone_if_no_acl_found="yes")
    loop.close()


def creation(**changes: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": T.TOPIC,
        "resource_name": "t",
        "principal": "User:anna",
        "host": "*",
        "operation": Op.READ,
        "permission_type": P.ALLOW,
    }
    return AclCreation(**(fields | changes))


GUARDED = PAGE_CACHE | {"authorizer.class.name": KAFKA_AUTHORIZERS[-1]}


@pytest.mark.parametrize("version", range(4))
def test_rules_are_made_described_and_taken_back(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        wrong = [
            creation(resource_type=T.ANY),
            creation(resource_type=99),
            creation(operation=Op.ANY),
            creation(permission_type=P.ANY),
            creation(resource_name=""),
            creation(principal="anna"),
            creation(host=""),
            creation(resource_type=T.CLUSTER),
        ]
        right = [creation(), creation(), creation(operation=Op.ALL, principal="User:ben", permission_type=P.DENY)]
        answer = await client.send(CreateAclsRequest(creations=wrong + right), version)
        assert [one.error_code for one in answer.results] == [ErrorCode.INVALID_REQUEST] * len(wrong) + [0, 0, 0]
        everything: dict[str, Any] = {"operation": Op.ANY, "permission_type": P.ANY, "host_filter": None}
        everything |= {"resource_name_filter": None, "pattern_type_filter": AclPatternType.ANY if version else 3}
        asked = DescribeAclsRequest(resource_type_filter=T.ANY, principal_filter=None, **everything)
        described = await client.send(asked, version)
        (resource,) = described.resources
        assert (resource.resource_name, resource.pattern_type) == ("t", AclPatternType.LITERAL)
        assert {(one.principal, one.operation, one.permission_type) for one in resource.acls} == {
            ("User:anna", Op.READ, P.ALLOW),
            ("User:ben", Op.ALL, P.DENY),
        }
        wanted = DeleteAclsFilter(resource_type_filter=T.TOPIC, principal_filter="User:anna", **everything)
        bad = DeleteAclsFilter(resource_type_filter=0, **everything)
        deleted = await client.send(DeleteAclsRequest(filters=[wanted, bad, wanted]), version)
        assert [one.error_code for one in deleted.filter_results] == [0, ErrorCode.INVALID_REQUEST, 0]
        assert [len(one.matching_acls) for one in deleted.filter_results] == [1, 0, 0]
        assert len((await client.send(asked, version)).resources[0].acls) == 1

    play(talk, settings=GUARDED | {"super.users": "User:ANONYMOUS"})


def test_a_broker_with_rules_lets_nobody_do_what_none_allows() -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        for version in range(4):
            answer = await client.send(CreateAclsRequest(creations=[creation()]), version)
            assert [one.error_code for one in answer.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        assert (await client.send(MetadataRequest(topics=None), 12)).topics == []
        told = await client.send(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
        assert (told.error_code, len(told.brokers), told.cluster_authorized_operations) == (0, 1, 0)
        answer = await client.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        guard = plane.state.security.acls
        assert guard is not None
        may_create = AccessControlEntry("User:ANONYMOUS", "*", Op.CREATE, P.ALLOW)
        may_write = AccessControlEntry("User:ANONYMOUS", "*", Op.WRITE, P.ALLOW)
        new = ResourcePattern(T.TOPIC, "new", PREFIXED)
        await guard.create([AclBinding(new, may_create), AclBinding(new, may_write)])
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("new1", "old")],
            timeout_ms=1000,
        )
        made = {one.name: one for one in (await client.send(request, 7)).topics}
        assert made["old"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # Who may not see settings is not told those of what it made either.
        hidden = made["new1"]
        assert (hidden.error_code, hidden.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert (hidden.num_partitions, hidden.replication_factor, hidden.configs) == (-1, -1, [])
        assert [one.name for one in (await client.send(MetadataRequest(topics=None), 12)).topics] == ["new1"]
        answer = await client.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert answer.error_code == 0

    play(talk, settings=GUARDED)


def test_paths_and_text_of_an_unusual_name() -> None:
    pattern = ResourcePattern(T.GROUP, "a/b")
    assert acl_path(pattern) == "/kafka-acl/Group/a%2Fb"
    assert json.loads(encode_acls(pattern, []))["resource"] == "a/b"
