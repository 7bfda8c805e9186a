"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources as Kafka answers them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.server.config.test_password_encoder import PORTS
from tests.server.handled import handled

from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from barnabas.protocol.errors import LONGEST_MESSAGE, ErrorCode
from barnabas.protocol.messages import alter_configs as legacy
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.server.apis.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.config_repository import ConfigRepository
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.config.keys.catalogue import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
from barnabas.server.config.keys.definition import ConfigType
from barnabas.server.metadata.cluster_store import ClusterStore
from barnabas.server.metadata.config_store import ConfigStore
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_cache import MetadataCache, TopicImage
from barnabas.server.metadata.metadata_store import StoreUnavailableError
from barnabas.server.metadata.znodes import BrokerInfo

TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER
METRICS = ConfigResourceType.CLIENT_METRICS
BROKER_ID = 3
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


@pytest.fixture
async def broker() -> Any:
    """The parts of a broker that these handlers reach, with a topic `flights`."""
    config = BrokerConfig(
        {
            "broker.id": "3",
            "log.retention.hours": "2",
            "num.io.threads": "9",
            "own.secret": "s",
            "password.encoder.secret": "p",
        }
    )
    metadata_store = EmbeddedStore(DataTree(lambda: 0))
    await ClusterStore(metadata_store, now_ms=lambda: 0, token_bytes=lambda size: b"\1" * size).prepare()
    store = ConfigStore(metadata_store, now_ms=lambda: 0)
    metadata = MetadataCache("cluster")
    metadata.put_topics([TopicImage("flights", UUID(int=7), {})])
    metadata.set_brokers({BROKER_ID: BrokerInfo(BROKER_ID, ())})
    dynamic = DynamicConfig(config, PORTS)
    return SimpleNamespace(
        config_repository=ConfigRepository(BROKER_ID, dynamic, store, metadata),
        config=config,
        config_store=store,
        metadata_cache=metadata,
        dynamic_config=dynamic,
    )


def context(broker: Any, version: int) -> Any:
    return SimpleNamespace(broker=broker, api_version=version)


def describe(
    broker: Any,
    kind: int,
    name: str,
    *,
    version: int = 4,
    keys: list[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = handled(describe_configs, context(broker, version), request).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def entry(result: DescribeConfigsResult, name: str) -> DescribeConfigsResourceResult:
    (found,) = [config for config in result.configs if config.name == name]
    return found


def chain(config: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


async def edit(
    broker: Any, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str | None]:
    configs = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (response,) = (await handled(incremental_alter_configs, context(broker, 1), request)).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response.error_code, response.error_message


async def replace(
    broker: Any, kind: int, name: str, configs: dict[str, str | None], *, validate_only: bool = False
) -> tuple[int, str | None]:
    resource = legacy.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[legacy.AlterableConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = legacy.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (response,) = (await handled(alter_configs, context(broker, 2), request)).responses
    return response.error_code, response.error_message


# -- describe ----------------------------------------------------------------------------------------------------------


async def test_a_topic_is_described_with_every_key(broker: Any) -> None:
    result = describe(broker, TOPIC, "flights")
    assert result.error_code == ErrorCode.NONE
    assert {config.name for config in result.configs} == {name for name, key in TOPIC_KEYS.items() if not key.internal}
    retention = entry(result, "retention.ms")
    assert (retention.value, retention.config_type, retention.read_only) == ("7200000", ConfigType.LONG, False)
    assert (retention.synonyms, retention.documentation) == ([], None)
    assert entry(result, "cleanup.policy").value == "delete"
    assert entry(result, "flush.ms").value == str(2**63 - 1)
    assert entry(result, "min.cleanable.dirty.ratio").value == "0.5"


async def test_synonyms_are_ordered_from_the_most_specific_to_the_default(broker: Any) -> None:
    key = "max.message.bytes"
    layers = [("message.max.bytes", "1048588", ConfigSource.DEFAULT)]
    assert chain(entry(describe(broker, TOPIC, "flights", synonyms=True), key)) == layers
    await edit(broker, BROKER, "", ("message.max.bytes", SET, "20"))
    layers.insert(0, ("message.max.bytes", "20", ConfigSource.DYNAMIC_DEFAULT_BROKER))
    await edit(broker, BROKER, "3", ("message.max.bytes", SET, "30"))
    layers.insert(0, ("message.max.bytes", "30", ConfigSource.DYNAMIC_BROKER))
    assert entry(describe(broker, TOPIC, "flights"), key).config_source == ConfigSource.DYNAMIC_BROKER
    await edit(broker, TOPIC, "flights", (key, SET, "40"))
    layers.insert(0, (key, "40", ConfigSource.TOPIC))
    described = entry(describe(broker, TOPIC, "flights", synonyms=True), key)
    assert (described.value, described.config_source) == ("40", ConfigSource.TOPIC)
    assert chain(described) == layers


async def test_a_chain_of_units_begins_with_the_key_itself_as_in_kafka(broker: Any) -> None:
    result = describe(broker, BROKER, "3", synonyms=True)
    hours = entry(result, "log.retention.hours")
    assert chain(hours) == [
        ("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    assert (entry(result, "log.retention.ms").value, chain(entry(result, "log.retention.ms"))) == (None, [])
    await edit(broker, BROKER, "", ("log.retention.ms", SET, "5"))
    assert chain(entry(describe(broker, TOPIC, "flights", synonyms=True), "retention.ms")) == [
        ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


async def test_a_broker_is_described_with_every_key_and_without_secrets(broker: Any) -> None:
    result = describe(broker, BROKER, "3")
    names = {config.name for config in result.configs}
    assert names == {name for name, key in BROKER_KEYS.items() if not key.internal} | {"own.secret"}
    threads = entry(result, "num.io.threads")
    assert (threads.value, threads.config_source, threads.read_only) == ("9", ConfigSource.STATIC_BROKER, False)
    assert entry(result, "broker.id").read_only
    secret = entry(result, "own.secret")
    assert (secret.value, secret.is_sensitive, secret.read_only, secret.config_type) == (None, True, True, 0)
    for config in result.configs:
        if config.config_type == ConfigType.PASSWORD:
            assert (config.is_sensitive, config.value) == (True, None)


async def test_a_secret_is_told_by_no_synonym(broker: Any) -> None:
    name = "listener.name.plaintext.ssl.keystore.password"
    assert await edit(broker, BROKER, "3", (name, SET, "hunter2")) == (ErrorCode.NONE, None)
    described = entry(describe(broker, BROKER, "3", synonyms=True), name)
    assert (described.value, described.is_sensitive) == (None, True)
    assert chain(described) == [(name, None, ConfigSource.DYNAMIC_BROKER)]
    assert "hunter2" not in str(describe(broker, BROKER, "3", synonyms=True))


async def test_all_brokers_together_have_only_what_was_set_for_all(broker: Any) -> None:
    assert describe(broker, BROKER, "").configs == []
    await edit(broker, BROKER, "", ("log.cleaner.threads", SET, "2"))
    (described,) = describe(broker, BROKER, "", synonyms=True).configs
    assert (described.name, described.value) == ("log.cleaner.threads", "2")
    assert described.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER
    assert chain(described) == [("log.cleaner.threads", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER)]


async def test_only_the_keys_asked_for_are_described(broker: Any) -> None:
    result = describe(broker, TOPIC, "flights", keys=["retention.ms", "nonsense"])
    assert [config.name for config in result.configs] == ["retention.ms"]
    assert len(describe(broker, TOPIC, "flights", keys=[]).configs) > 30


async def test_version_0_says_what_is_a_default(broker: Any) -> None:
    await edit(broker, TOPIC, "flights", ("segment.bytes", SET, "100"))
    result = describe(broker, TOPIC, "flights", version=0)
    assert not entry(result, "segment.bytes").is_default
    assert entry(result, "cleanup.policy").is_default


async def test_documentation_is_there_for_every_key_when_asked_for(broker: Any) -> None:
    for kind, name in ((TOPIC, "flights"), (BROKER, "3")):
        for config in describe(broker, kind, name, documentation=True).configs:
            assert config.documentation and config.documentation.endswith(".")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "4", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "4", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_described_has_an_error_of_its_own(
    broker: Any, kind: int, name: str, code: ErrorCode
) -> None:
    result = describe(broker, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


async def test_groups_and_client_metrics_that_nobody_configured_have_defaults(broker: Any) -> None:
    group = describe(broker, ConfigResourceType.GROUP, "any", synonyms=True)
    assert {config.name for config in group.configs} == {name for name, key in GROUP_KEYS.items() if not key.internal}
    session = entry(group, "consumer.session.timeout.ms")
    assert (session.value, session.config_source) == ("45000", ConfigSource.DEFAULT)
    assert chain(session) == [("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT)]
    reset = entry(group, "share.auto.offset.reset")
    assert chain(reset) == [("share.auto.offset.reset", "latest", ConfigSource.DEFAULT)]
    metrics = describe(broker, ConfigResourceType.CLIENT_METRICS, "any")
    assert {config.name for config in metrics.configs} == set(CLIENT_METRICS_KEYS)


def listed(broker: Any, kinds: list[int], version: int = 1) -> list[tuple[str, int]]:
    request = ListConfigResourcesRequest(resource_types=kinds)
    response = handled(list_config_resources, context(broker, version), request)
    assert response.error_code == ErrorCode.NONE
    return [(resource.resource_name, resource.resource_type) for resource in response.config_resources]


async def test_a_group_has_settings_of_its_own_until_they_are_deleted(broker: Any) -> None:
    kind, name = ConfigResourceType.GROUP, "a/group of ours"
    assert await edit(broker, kind, name, ("consumer.session.timeout.ms", SET, "50000")) == (ErrorCode.NONE, None)
    assert broker.dynamic_config.group_number(name, "consumer.session.timeout.ms") == 50000
    session = entry(describe(broker, kind, name, synonyms=True), "consumer.session.timeout.ms")
    assert (session.value, session.config_source) == ("50000", ConfigSource.GROUP)
    assert chain(session) == [
        ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    ]
    assert entry(describe(broker, kind, "another"), "consumer.session.timeout.ms").value == "45000"
    assert listed(broker, [kind]) == [(name, kind)]
    assert await broker.config_store.named_configs("groups") == {name: {"consumer.session.timeout.ms": "50000"}}
    again = DynamicConfig(broker.config)
    await again.load(broker.config_store, 3)
    assert again.named_config(kind, name) == {"consumer.session.timeout.ms": "50000"}
    assert await edit(broker, kind, name, ("consumer.session.timeout.ms", DELETE, None)) == (ErrorCode.NONE, None)
    assert broker.dynamic_config.group_number(name, "consumer.session.timeout.ms") == 45000
    assert listed(broker, [kind]) == []


async def test_a_group_setting_beyond_a_limit_of_the_broker_counts_as_the_limit() -> None:
    narrow = {"group.share.max.delivery.count.limit": "6", "group.share.delivery.count.limit": "6"}
    dynamic_config = DynamicConfig(BrokerConfig(narrow))
    dynamic_config.named_config_changed(
        ConfigResourceType.GROUP, "g", {"share.delivery.count.limit": "9", "share.isolation.level": "read_committed"}
    )
    assert dynamic_config.group_config("g", "share.delivery.count.limit") == 6
    assert dynamic_config.group_config("g", "share.isolation.level") == "read_committed"
    assert dynamic_config.group_config("g", "share.renew.acknowledge.enable") is True
    assert dynamic_config.group_config("g", "streams.assignor.name") == "sticky"
    assert dynamic_config.group_config("h", "share.delivery.count.limit") == 6


async def test_a_client_metrics_subscription_lasts_until_its_last_setting_is_deleted(broker: Any) -> None:
    kind, names = METRICS, ["..", "all/of them", "x.y"]
    settings = {"interval.ms": "5000", "match": "client_id=foo, client_source_port = 1[0-9]+", "metrics": "a.,b."}
    for name in names:
        assert await edit(broker, kind, name, *((key, SET, value) for key, value in settings.items())) == (0, None)
    result = describe(broker, kind, names[0], synonyms=True, documentation=True)
    values = {config.name: (config.value, config.config_source, config.config_type) for config in result.configs}
    assert values == {
        "interval.ms": ("5000", ConfigSource.CLIENT_METRICS, ConfigType.INT),
        "match": ("client_id=foo,client_source_port = 1[0-9]+", ConfigSource.CLIENT_METRICS, ConfigType.LIST),
        "metrics": ("a.,b.", ConfigSource.CLIENT_METRICS, ConfigType.LIST),
    }
    assert chain(entry(result, "interval.ms")) == [("interval.ms", "5000", ConfigSource.CLIENT_METRICS)]
    assert listed(broker, [kind]) == listed(broker, [], version=0) == [(name, kind) for name in names]
    again = DynamicConfig(broker.config)
    await again.load(broker.config_store, BROKER_ID)
    assert {name: again.named_config(kind, name) for name in again.configured(kind)} == dict.fromkeys(names, settings)
    await edit(broker, kind, names[0], ("interval.ms", DELETE, None))
    interval = entry(describe(broker, kind, names[0], synonyms=True), "interval.ms")
    assert (interval.value, interval.config_source, chain(interval)) == ("300000", ConfigSource.DEFAULT, [])
    await edit(broker, kind, names[0], ("match", DELETE, None), ("metrics", DELETE, None))
    assert await replace(broker, kind, names[1], {}) == (0, None)
    assert await replace(broker, kind, "nobody", {}) == (0, None)
    assert listed(broker, [kind]) == [(names[2], kind)]
    assert await broker.config_store.named_configs("client-metrics") == {names[2]: settings}


async def test_a_client_metrics_subscription_is_replaced_and_checked_by_the_older_request(broker: Any) -> None:
    await edit(broker, METRICS, "x", ("metrics", SET, "a"))
    assert await replace(broker, METRICS, "x", {"interval.ms": "99"}) == (
        ErrorCode.INVALID_REQUEST,
        "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
    )
    assert await replace(broker, METRICS, "x", {"match": ""}, validate_only=True) == (ErrorCode.NONE, None)
    assert broker.dynamic_config.named_config(METRICS, "x") == {"metrics": "a"}
    assert await replace(broker, METRICS, "x", {"interval.ms": "100"}) == (ErrorCode.NONE, None)
    assert broker.dynamic_config.named_config(METRICS, "x") == {"interval.ms": "100"}


async def test_clients_are_matched_by_regular_expressions_of_java(broker: Any) -> None:
    for regex in (r"\Qa[\E.*", r"a(?i)b", r"(?<n>a)\k<n>", r"[\p{L}&&[^a]]", r"(?<!ab|c)d", r"\p{Alpha}\z", r"\2{2}"):
        assert await edit(broker, METRICS, "x", ("match", SET, f"client_id={regex}")) == (ErrorCode.NONE, None)
    for regex in (
        r"(?P<n>a)",
        r"a{x}",
        r"[[a]",
        r"a**",
        r"\x{4",
        r"(" * 9999,
        r"a{9999999999}",
        r"(?#a)",
        "[^]a" * 5000,
    ):
        error, message = await edit(broker, METRICS, "x", ("match", SET, f"client_id={regex}"))
        told = f"Illegal client matching pattern: client_id={regex}"
        assert error == ErrorCode.INVALID_CONFIG
        assert message == (told if len(told) <= LONGEST_MESSAGE else f"{told[: LONGEST_MESSAGE - 1]}…")


async def test_what_holds_for_a_client_is_no_longer_than_strings_of_java(broker: Any) -> None:
    assert await edit(broker, METRICS, "x", ("metrics", SET, "a" * 32767)) == (ErrorCode.NONE, None)
    assert await edit(broker, METRICS, "x", ("metrics", SET, "a" * 32768)) == (
        ErrorCode.INVALID_CONFIG,
        "The value of metrics has 32768 characters, 32767 at most are allowed",
    )


# -- alter -------------------------------------------------------------------------------------------------------------


async def test_alter_configs_replaces_the_whole_set(broker: Any) -> None:
    await edit(broker, TOPIC, "flights", ("segment.bytes", SET, "100"))
    assert await replace(broker, TOPIC, "flights", {"retention.ms": "5"}) == (ErrorCode.NONE, None)
    assert await broker.config_store.topic_config("flights") == {"retention.ms": "5"}
    log_config = broker.dynamic_config.topic_log_config("flights")
    assert (log_config.retention_ms, log_config.segment_bytes) == (5, 1 << 30)
    assert await replace(broker, TOPIC, "flights", {}) == (ErrorCode.NONE, None)
    assert await broker.config_store.topic_config("flights") == {}


async def test_operations_set_delete_append_and_subtract(broker: Any) -> None:
    async def policy() -> str | None:
        settings: dict[str, str] = await broker.config_store.topic_config("flights")
        return settings.get("cleanup.policy")

    assert await edit(broker, TOPIC, "flights", ("cleanup.policy", APPEND, "compact")) == (ErrorCode.NONE, None)
    assert await policy() == "delete,compact"
    await edit(broker, TOPIC, "flights", ("cleanup.policy", APPEND, "compact"), ("segment.bytes", SET, "100"))
    assert await policy() == "delete,compact"
    await edit(broker, TOPIC, "flights", ("cleanup.policy", SUBTRACT, "delete"))
    assert await policy() == "compact"
    await edit(broker, TOPIC, "flights", ("cleanup.policy", DELETE, None), ("retention.ms", DELETE, None))
    assert await broker.config_store.topic_config("flights") == {"segment.bytes": "100"}
    assert broker.dynamic_config.topic_log_config("flights").segment_bytes == 100


async def test_a_list_of_the_broker_is_extended_at_its_default(broker: Any) -> None:
    assert await edit(broker, BROKER, "", ("log.cleanup.policy", APPEND, "compact")) == (ErrorCode.NONE, None)
    assert broker.config.log_cleanup_policy == ("delete", "compact")


@pytest.mark.parametrize("kind_and_name", [(TOPIC, "flights"), (BROKER, "3"), (BROKER, "")])
async def test_validate_only_changes_nothing_and_checks_everything(broker: Any, kind_and_name: Any) -> None:
    kind, name = kind_and_name
    key = "compression.type"
    assert await edit(broker, kind, name, (key, SET, "gzip"), validate_only=True) == (ErrorCode.NONE, None)
    assert await replace(broker, kind, name, {key: "gzip"}, validate_only=True) == (ErrorCode.NONE, None)
    code, _ = await edit(broker, kind, name, (key, SET, "brotli"), validate_only=True)
    assert code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert await broker.config_store.topic_config("flights") == {}
    assert await broker.config_store.broker_config(3) == await broker.config_store.broker_config(None) == {}
    assert broker.config.compression_type == "producer"


async def test_broker_settings_are_stored_per_broker_or_for_all(broker: Any) -> None:
    assert await edit(broker, BROKER, "3", ("max.connections", SET, "5")) == (ErrorCode.NONE, None)
    assert await replace(broker, BROKER, "", {"max.connections": "6"}) == (ErrorCode.NONE, None)
    assert await broker.config_store.broker_config(3) == {"max.connections": "5"}
    assert await broker.config_store.broker_config(None) == {"max.connections": "6"}
    assert broker.config.max_connections == 5


@pytest.mark.parametrize(
    ("kind", "name", "change", "code", "message"),
    [
        (TOPIC, "nobody", ("retention.ms", SET, "1"), 3, "The topic 'nobody' does not exist."),
        (TOPIC, "", ("retention.ms", SET, "1"), 42, "Default topic resources are not allowed."),
        (TOPIC, "flights", ("nonsense", SET, "1"), 40, "Unknown topic config name: nonsense"),
        (TOPIC, "flights", ("retention.ms", SET, None), 42, "Null value not supported for : retention.ms"),
        (
            TOPIC,
            "flights",
            ("retention.ms", APPEND, "1"),
            40,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (TOPIC, "flights", ("retention.ms", 9, "1"), 42, "Unknown operations type 9"),
        (
            TOPIC,
            "flights",
            ("internal.segment.bytes", SET, "99"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value 99 for configuration internal.segment.bytes: Value must be at least 100",
        ),
        (
            TOPIC,
            "flights",
            ("segment.bytes", SET, "5"),
            40,
            "Invalid value 5 for configuration segment.bytes: Value must be at least 14",
        ),
        (BROKER, "3", ("broker.id", SET, "5"), 42, "Cannot update these configs dynamically: [broker.id]"),
        (BROKER, "4", ("max.connections", SET, "5"), 42, "Unexpected broker id, expected 3, but received 4"),
        (BROKER, "x", ("max.connections", SET, "5"), 42, "Node id must be an integer, but it is: x"),
        (
            ConfigResourceType.GROUP,
            "g",
            ("consumer.session.timeout.ms", SET, "5"),
            40,
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            ConfigResourceType.GROUP,
            "g",
            ("consumer.heartbeat.interval.ms", SET, "15001"),
            40,
            "consumer.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive.",
        ),
        (
            ConfigResourceType.GROUP,
            "g",
            ("share.delivery.count.limit", SET, "11"),
            40,
            "share.delivery.count.limit must be in the range 2 to 10 inclusive.",
        ),
        (
            ConfigResourceType.GROUP,
            "g",
            ("streams.num.standby.replicas", SET, "3"),
            40,
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
        (
            ConfigResourceType.GROUP,
            "g",
            ("streams.task.offset.interval.ms", SET, "10"),
            40,
            "streams.task.offset.interval.ms must be greater than or equal to 15000",
        ),
        (
            ConfigResourceType.GROUP,
            "g",
            ("streams.assignor.name", SET, "other"),
            40,
            "streams.assignor.name 'other' is not a registered task assignor. Registered assignors are: [sticky].",
        ),
        (
            ConfigResourceType.GROUP,
            "g",
            ("streams.rack.aware.assignment.tags", SET, "zone, zone"),
            40,
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
        (
            ConfigResourceType.GROUP,
            "g",
            ("errors.deadletterqueue.topic.name", SET, "__dead"),
            40,
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
        (ConfigResourceType.GROUP, "g", ("nonsense", SET, "5"), 40, "Unknown group config name: nonsense"),
        (ConfigResourceType.GROUP, "", ("a", SET, "5"), 42, "Default group resources are not allowed."),
        (METRICS, "x", ("nonsense", SET, "5"), 42, "Unknown client metrics configuration: nonsense"),
        (METRICS, "", ("metrics", SET, "a"), 42, "Subscription name can't be empty"),
        (
            METRICS,
            "x",
            ("interval.ms", SET, "3600001"),
            42,
            "Invalid value 3600001 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            METRICS,
            "x",
            ("interval.ms", SET, "soon"),
            40,
            "Invalid value soon for configuration interval.ms: Not a number of type INT",
        ),
        (METRICS, "x", ("match", SET, "a=b"), 40, "Illegal client matching pattern: a=b"),
        (METRICS, "x", ("match", SET, "client_id=a, client_id"), 40, "Illegal client matching pattern: client_id"),
        (METRICS, "x", ("match", SET, "client_id=[a"), 40, "Illegal client matching pattern: client_id=[a"),
        (METRICS, "x", ("metrics", APPEND, "a"), 40, "Can't APPEND to key metrics because its type is not LIST."),
        (77, "g", ("a", SET, "5"), 42, "Unknown resource type 77"),
    ],
)
async def test_a_refused_change_says_why(
    broker: Any, kind: int, name: str, change: tuple[str, int, str | None], code: int, message: str
) -> None:
    assert await edit(broker, kind, name, change) == (code, message)


async def test_a_key_or_a_resource_named_twice_is_refused(broker: Any) -> None:
    twice = [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]
    assert await edit(broker, TOPIC, "flights", *twice) == (
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    )
    resources = [
        legacy.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[])
        for name in ("flights", "other", "flights")
    ]
    response = await handled(alter_configs, context(broker, 2), legacy.AlterConfigsRequest(resources=resources))
    assert [(r.resource_name, r.error_code) for r in response.responses] == [
        ("flights", ErrorCode.INVALID_REQUEST),
        ("other", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("flights", ErrorCode.INVALID_REQUEST),
    ]


async def test_loggers_cannot_be_altered_by_the_older_request(broker: Any) -> None:
    assert await replace(broker, LOGGER, "3", {"root": "INFO"}) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown resource type 8",
    )


# -- loggers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("barnabas.config.handlers.test")
    before = logging.root.level
    yield found
    found.setLevel(logging.NOTSET)
    logging.root.setLevel(before)


async def test_levels_of_loggers_are_seen_and_set(broker: Any, logger: logging.Logger) -> None:
    assert await edit(broker, LOGGER, "3", (logger.name, SET, "DEBUG")) == (ErrorCode.NONE, None)
    assert logger.level == logging.DEBUG
    described = entry(describe(broker, LOGGER, "3"), logger.name)
    assert (described.value, described.config_source) == ("DEBUG", ConfigSource.DYNAMIC_BROKER_LOGGER)
    assert entry(describe(broker, LOGGER, "3"), "root").value in ("WARN", "INFO", "DEBUG", "ERROR", "FATAL", "TRACE")
    assert await edit(broker, LOGGER, "3", (logger.name, DELETE, "")) == (ErrorCode.NONE, None)
    assert logger.level == logging.NOTSET
    await edit(broker, LOGGER, "3", ("root", SET, "ERROR"), validate_only=True)
    assert logging.root.level != logging.ERROR
    await edit(broker, LOGGER, "3", ("root", SET, "ERROR"))
    assert logging.root.level == logging.ERROR


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("nobody", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (("root", DELETE, ""), ErrorCode.INVALID_REQUEST),
        (("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_level_that_cannot_be_is_refused(broker: Any, change: Any, code: ErrorCode) -> None:
    assert (await edit(broker, LOGGER, "3", change))[0] == code


# -- list --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "kinds", "expected"),
    [
        (0, [], []),
        (1, [], [("flights", 2), ("3", 4), ("3", 8)]),
        (1, [TOPIC], [("flights", 2)]),
        (1, [LOGGER, BROKER], [("3", 4), ("3", 8)]),
        (1, [ConfigResourceType.GROUP], []),
    ],
)
async def test_resources_are_listed_by_kind(
    broker: Any, version: int, kinds: list[int], expected: list[tuple[str, int]]
) -> None:
    assert listed(broker, kinds, version) == expected


async def test_an_unknown_kind_of_resource_is_refused(broker: Any) -> None:
    request = ListConfigResourcesRequest(resource_types=[99])
    assert handled(list_config_resources, context(broker, 1), request).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_store_that_cannot_be_written_fails_what_needs_it_alone(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> None:
        raise StoreUnavailableError("/config/topics/flights")

    monkeypatch.setattr(broker.config_store, "set_topic_config", unavailable)
    named = [(BROKER, "3", "message.max.bytes"), (TOPIC, "flights", "retention.ms"), (BROKER, "", "log.retention.ms")]
    resources = [
        incremental.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[incremental.AlterableConfig(name=key, config_operation=SET, value="2000")],
        )
        for kind, name, key in named
    ]
    request = incremental.IncrementalAlterConfigsRequest(resources=resources)
    responses = (await handled(incremental_alter_configs, context(broker, 1), request)).responses
    assert [one.error_code for one in responses] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert broker.dynamic_config.config.message_max_bytes == 2000
