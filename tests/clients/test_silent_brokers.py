"""Timeouts of client calls against a broker that accepts a request and never responds, in virtual time.

Each call has less time than the 30 seconds that the connection gives a request.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Container
from typing import Any

import pytest
from tests.clients.scripted_broker import SILENCE, ScriptedCluster, play
from tests.clients.share import scripted_share_group
from tests.clients.share.scripted_share_group import ScriptedShareGroup

from barnabas.clients import Admin, Consumer, NewTopic, Producer, ShareConsumer
from barnabas.clients.admin import ConfigChange, ConfigResource, ElectionType, ScramMechanism
from barnabas.clients.admin.transactions import OpenTransaction
from barnabas.protocol.acl_bindings import AclBindingFilter
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.apis.table import SERVED

T0 = TopicPartition("t", 0)
TIMEOUT_MS = 500
LATE_S = 0.1
"""Time of the simulated network and of closing connections."""


def serve_coordinators(cluster: ScriptedCluster, silent: Container[ApiKey]) -> None:
    """All APIs are advertised; broker 1 is every coordinator, and requests of `silent` APIs have no response."""
    cluster.versions = {key: (api.lowest, api.highest) for key, api in SERVED.items()}
    cluster.versions |= {ApiKey.API_VERSIONS: (0, 4), ApiKey.DESCRIBE_QUORUM: (0, 2)}

    def before(node: int, key: ApiKey, request: Any) -> object:
        if key in silent:
            return SILENCE
        if key is not ApiKey.FIND_COORDINATOR:
            return None
        host = cluster.nodes[1]
        found = [Coordinator(key=one, node_id=1, host=host, port=9092) for one in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)

    cluster.before = before


async def elapsed(cluster: ScriptedCluster, call: Awaitable[Any]) -> tuple[float, object]:
    """Await a call; returns its seconds, and its result or its error."""
    began = cluster.loop.time()
    try:
        result = await call
    except KafkaError as error:
        result = error
    return cluster.loop.time() - began, result


CONSUMER_CALLS: dict[str, tuple[ApiKey, Callable[[Consumer], Awaitable[Any]]]] = {
    "commit": (ApiKey.OFFSET_COMMIT, lambda one: one.commit({T0: 1}, timeout_ms=TIMEOUT_MS)),
    "commit of positions": (ApiKey.OFFSET_COMMIT, lambda one: one.commit(timeout_ms=TIMEOUT_MS)),
    "committed": (ApiKey.OFFSET_FETCH, lambda one: one.committed([T0], timeout_ms=TIMEOUT_MS)),
    "end_offsets": (ApiKey.LIST_OFFSETS, lambda one: one.end_offsets([T0])),
    "partitions_for": (ApiKey.METADATA, lambda one: one.partitions_for("other", timeout_ms=TIMEOUT_MS)),
}


@pytest.mark.parametrize("name", CONSUMER_CALLS)
def test_consumer_calls_end_although_a_coordinator_that_was_found_is_silent(name: str) -> None:
    key, call = CONSUMER_CALLS[name]

    async def story(cluster: ScriptedCluster) -> None:
        silent: set[ApiKey] = set()
        serve_coordinators(cluster, silent)
        settings: dict[str, Any] = {"enable_auto_commit": False, "default_api_timeout_ms": TIMEOUT_MS}
        async with Consumer(cluster.bootstrap, group_id="g", rng=random.Random(1), **settings) as one:
            one.assign([T0])
            one.seek(T0, 0)
            await one.partitions_for("t")
            silent.add(key)
            seconds, error = await elapsed(cluster, call(one))
            assert isinstance(error, KafkaError)
            assert error.code is ErrorCode.REQUEST_TIMED_OUT
            assert seconds < TIMEOUT_MS / 1000 + LATE_S
            assert cluster.asked(key), "the request has reached the broker"

    play(story)


@pytest.mark.parametrize("key", [ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT, ApiKey.FIND_COORDINATOR])
def test_a_consumer_reads_and_closes_in_time_although_its_coordinator_is_silent(key: ApiKey) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        silent = {key}
        serve_coordinators(cluster, silent)
        settings: dict[str, Any] = {"default_api_timeout_ms": TIMEOUT_MS, "auto_offset_reset": "earliest"}
        one = Consumer(cluster.bootstrap, group_id="g", rng=random.Random(1), **settings)
        await one.start()
        one.assign([T0])
        if key is ApiKey.OFFSET_COMMIT:
            one.seek(T0, 0)
        seconds, records = await elapsed(cluster, one.getmany(timeout_ms=TIMEOUT_MS))
        assert not records
        assert seconds < TIMEOUT_MS / 1000 + LATE_S
        seconds, _ = await elapsed(cluster, one.close())
        assert seconds < TIMEOUT_MS / 1000 + LATE_S

    play(story)


@pytest.mark.parametrize(
    ("key", "call"),
    [
        (ApiKey.METADATA, lambda one: one.send("other", b"v")),
        (ApiKey.METADATA, lambda one: one.partitions_for("other")),
        (ApiKey.FIND_COORDINATOR, lambda one: one.init_transactions()),
        (ApiKey.INIT_PRODUCER_ID, lambda one: one.init_transactions()),
    ],
)
def test_a_producer_is_blocked_at_most_for_max_block_ms(
    key: ApiKey, call: Callable[[Producer], Awaitable[Any]]
) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        silent: set[ApiKey] = set()
        serve_coordinators(cluster, silent)
        transactional_id = None if key is ApiKey.METADATA else "t"
        one = Producer(
            cluster.bootstrap, rng=random.Random(1), max_block_ms=TIMEOUT_MS, transactional_id=transactional_id
        )
        if key is not ApiKey.METADATA:
            silent.add(key)
            seconds, error = await elapsed(cluster, one.start())
        else:
            await one.start()
            silent.add(key)
            seconds, error = await elapsed(cluster, call(one))
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        assert seconds < TIMEOUT_MS / 1000 + LATE_S
        await one.close(timeout_ms=0)

    play(story)


# -- share consumers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", [ApiKey.FIND_COORDINATOR, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.METADATA]
)
def test_a_share_consumer_reads_and_closes_in_time_although_a_broker_is_silent(key: ApiKey) -> None:
    async def story(group: ScriptedShareGroup) -> None:
        silent: set[ApiKey] = set()
        group.before = lambda node, asked, request: SILENCE if asked in silent else None
        one = ShareConsumer(group.bootstrap, "g", ["t"], rng=random.Random(1), request_timeout_ms=1000)
        await one.start()
        silent.add(key)
        seconds, records = await elapsed(group, one.getmany(timeout_ms=TIMEOUT_MS))
        assert not records
        assert seconds < TIMEOUT_MS / 1000 + LATE_S
        seconds, _ = await elapsed(group, one.close())
        assert seconds < 2 * 1.0 + LATE_S, "the acknowledgements and the leave have a request timeout each"

    scripted_share_group.play(story)


def test_a_share_consumer_commits_in_time_although_a_leader_is_silent() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        silent: set[ApiKey] = set()
        group.before = lambda node, asked, request: SILENCE if asked in silent else None
        group.fill(3)
        async with ShareConsumer(group.bootstrap, "g", ["t"], rng=random.Random(1), request_timeout_ms=1000) as one:
            assert await one.getmany(timeout_ms=10_000)
            silent |= {ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_FETCH}
            seconds, results = await elapsed(group, one.commit(timeout_ms=TIMEOUT_MS))
            assert seconds < TIMEOUT_MS / 1000 + LATE_S
            assert isinstance(results, dict)
            (error,) = results.values()
            assert error.code is ErrorCode.REQUEST_TIMED_OUT

    scripted_share_group.play(story)


# -- Admin -------------------------------------------------------------------------------------------------------------

BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
OPEN = OpenTransaction(T0, 1, 0, 0, 0, 0)
ADMIN_CALLS: dict[str, Callable[[Admin], Awaitable[Any]]] = {
    "create_topics": lambda one: one.create_topics([NewTopic("new")]),
    "delete_topics": lambda one: one.delete_topics(["t"]),
    "create_partitions": lambda one: one.create_partitions({"t": 2}),
    "describe_topics": lambda one: one.describe_topics(["t"]),
    "partitions_of": lambda one: one.partitions_of("t"),
    "describe_configs": lambda one: one.describe_configs([TOPIC, BROKER]),
    "alter_configs": lambda one: one.alter_configs({TOPIC: [ConfigChange("a", "b")], BROKER: [ConfigChange("a", "b")]}),
    "list_offsets": lambda one: one.list_offsets({T0: -1}),
    "delete_records": lambda one: one.delete_records({T0: 1}),
    "describe_cluster": lambda one: one.describe_cluster(),
    "describe_metadata_quorum": lambda one: one.describe_metadata_quorum(),
    "describe_log_dirs": lambda one: one.describe_log_dirs(),
    "alter_replica_log_dirs": lambda one: one.alter_replica_log_dirs(1, {T0: "/d"}),
    "update_features": lambda one: one.update_features({"f": 1}),
    "elect_leaders": lambda one: one.elect_leaders(ElectionType.PREFERRED, [T0]),
    "alter_partition_reassignments": lambda one: one.alter_partition_reassignments({T0: [1]}),
    "list_partition_reassignments": lambda one: one.list_partition_reassignments(),
    "list_groups": lambda one: one.list_groups(),
    "describe_groups": lambda one: one.describe_groups(["g"]),
    "describe_groups_of_all_types": lambda one: one.describe_groups_of_all_types(["g"]),
    "delete_groups": lambda one: one.delete_groups(["g"]),
    "list_group_offsets": lambda one: one.list_group_offsets(["g"]),
    "alter_group_offsets": lambda one: one.alter_group_offsets("g", {T0: 1}),
    "delete_group_offsets": lambda one: one.delete_group_offsets("g", [T0]),
    "remove_members": lambda one: one.remove_members("g"),
    "group_lag": lambda one: one.group_lag(["g"]),
    "describe_share_groups": lambda one: one.describe_share_groups(["g"]),
    "list_share_group_offsets": lambda one: one.list_share_group_offsets(["g"]),
    "alter_share_group_offsets": lambda one: one.alter_share_group_offsets("g", {T0: 1}),
    "delete_share_group_offsets": lambda one: one.delete_share_group_offsets("g", ["t"]),
    "delete_share_groups": lambda one: one.delete_share_groups(["g"]),
    "describe_streams_groups": lambda one: one.describe_streams_groups(["g"]),
    "list_streams_group_offsets": lambda one: one.list_streams_group_offsets(["g"]),
    "alter_streams_group_offsets": lambda one: one.alter_streams_group_offsets("g", {T0: 1}),
    "delete_streams_group_offsets": lambda one: one.delete_streams_group_offsets("g", [T0]),
    "delete_streams_groups": lambda one: one.delete_streams_groups(["g"]),
    "describe_quotas": lambda one: one.describe_quotas(),
    "alter_quotas": lambda one: one.alter_quotas({"user": "u"}, {"request_percentage": 1.0}),
    "describe_acls": lambda one: one.describe_acls(),
    "create_acls": lambda one: one.create_acls([]),
    "delete_acls": lambda one: one.delete_acls(AclBindingFilter()),
    "describe_user_scram_credentials": lambda one: one.describe_user_scram_credentials(),
    "upsert_user_scram_credential": lambda one: one.upsert_user_scram_credential("u", "p"),
    "delete_user_scram_credential": lambda one: one.delete_user_scram_credential("u", ScramMechanism.SCRAM_SHA_256),
    "list_config_resources": lambda one: one.list_config_resources(ConfigResourceType.GROUP),
    "list_transactions": lambda one: one.list_transactions(),
    "describe_transactions": lambda one: one.describe_transactions(["x"]),
    "open_transactions": lambda one: one.open_transactions([T0]),
    "abort_transaction": lambda one: one.abort_transaction(OPEN),
    "fence_producers": lambda one: one.fence_producers(["x"]),
    "find_hanging": lambda one: one.find_hanging([T0], older_than_ms=0, now_ms=0),
}


def test_every_method_of_admin_has_a_row() -> None:
    methods = {name for name, one in vars(Admin).items() if inspect.iscoroutinefunction(inspect.unwrap(one))}
    # These send the first request of a connection only, which these brokers answer.
    others = {"start", "close", "api_versions", "describe_features"}
    assert {name for name in methods if not name.startswith("_")} - others == set(ADMIN_CALLS)


@pytest.mark.parametrize("reached", [False, True], ids=["silent cluster", "silent after the look-up"])
@pytest.mark.parametrize("name", ADMIN_CALLS)
def test_admin_calls_end_in_time(name: str, reached: bool) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        silent: set[ApiKey] = set()
        serve_coordinators(cluster, silent)
        async with Admin(cluster.bootstrap, rng=random.Random(1), default_api_timeout_ms=TIMEOUT_MS) as one:
            served = {ApiKey.API_VERSIONS} | ({ApiKey.METADATA, ApiKey.FIND_COORDINATOR} if reached else set())
            silent |= set(ApiKey) - served
            seconds, result = await elapsed(cluster, ADMIN_CALLS[name](one))
            asked = {key for _, key, _, _ in cluster.requests} - {ApiKey.METADATA, ApiKey.API_VERSIONS}
            if reached and not asked:
                assert name in ("describe_topics", "partitions_of"), "Metadata is all that these send"
                return
            errors = result.values() if isinstance(result, dict) else [result]
            assert {error.code for error in errors if isinstance(error, KafkaError)} == {ErrorCode.REQUEST_TIMED_OUT}
            assert seconds < TIMEOUT_MS / 1000 + LATE_S

    play(story)
