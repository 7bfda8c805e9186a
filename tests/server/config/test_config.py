"""BrokerConfig: typed settings out of properties, in all layers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_type_hints

import pytest

from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.catalogue import BROKER_KEYS, GROUP_SYNONYMS, TOPIC_KEYS, TOPIC_SYNONYMS, UNIT_CHAINS
from barnabas.server.config.keys.definition import ConfigType
from barnabas.server.config.keys.quorum_keys import ZOOKEEPER_NAMES
from barnabas.server.config.keys.validators import ConfigError, java_double
from barnabas.server.config.listeners import ListenerConfig
from barnabas.server.config.settings import Settings

PYTHON_TYPES = {
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple[str, ...],
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}
# Settings whose attribute is made of several keys, or is another type than the key's.
DERIVED = {
    "advertised.listeners", "broker.id", "listener.security.protocol.map", "listeners", "log.dir", "log.dirs",
    "log.message.timestamp.difference.max.ms", "log.retention.hours", "log.retention.minutes", "log.roll.hours",
    "log.roll.jitter.hours", "max.connections.per.ip.overrides", "metadata.store.path", "node.id",
}  # fmt: skip

CHECKED_HERE = {
    "allow.insecure.listeners", "config.providers", "group.share.assignors", "log.cleanup.policy",
    "log.flush.scheduler.interval.ms", "log.message.format.version", "max.connections.per.ip", "process.roles",
}  # fmt: skip
"""Settings that the configuration itself acts upon, or hands on under another name."""
READ_BY_NAME = {
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
    "group.consumer.max.assignment.interval.ms", "group.consumer.min.assignment.interval.ms",
    "group.consumer.max.heartbeat.interval.ms", "group.consumer.max.session.timeout.ms",
    "group.consumer.min.heartbeat.interval.ms", "group.consumer.min.session.timeout.ms", "offsets.topic.num.partitions",
    "offsets.topic.replication.factor", "offsets.topic.segment.bytes", "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions", "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
    "connections.max.reauth.ms",
    *(name for name in BROKER_KEYS if name.startswith(("sasl.", "ssl.", "share.coordinator.state.topic."))),
    # Limits of the settings of groups, and the default of `streams.assignor.name`.
    *(name for name in BROKER_KEYS if re.match(r"group\.(consumer|share|streams)\.(min|max)\.(?!size$|share)", name)),
    "group.streams.assignors",
}  # fmt: skip
"""Settings that are read by their key, or whose attribute's name is put together when it is read."""
HONOURED = {name for name, key in BROKER_KEYS.items() if key.doc is not None}
HONOURED_OF_TOPICS = {name for name, key in TOPIC_KEYS.items() if key.doc is not None}


def test_defaults_listen_on_loopback_and_have_nothing_to_say() -> None:
    config = BrokerConfig()
    assert config.listeners == [ListenerConfig("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT", "127.0.0.1", 9092)]
    assert config.startup_warnings == ()
    assert (config.broker_id, config.configured_broker_id) == (1, None)
    assert config.log_dirs == [str(Path.cwd() / "barnabas-data")]
    assert config.metadata_store_path == f"{config.log_dirs[0]}/metadata.sqlite"
    assert config.log_retention_ms == 168 * 3_600_000
    assert config.log_roll_ms == 168 * 3_600_000
    assert config.log_roll_jitter_ms == 0
    assert config.log_flush_interval_ms == 2**63 - 1
    assert config.log_cleanup_policy == ("delete",)
    assert config.broker_rack is None
    assert config.acks_all_durability == "disk"


def test_every_key_has_an_attribute_and_the_typed_ones_are_those_that_have_an_effect() -> None:
    config = BrokerConfig()
    assert [name for name, key in BROKER_KEYS.items() if not hasattr(config, key.attribute)] == []
    honoured = HONOURED - DERIVED
    hints = get_type_hints(Settings)
    assert {BROKER_KEYS[name].attribute for name in honoured} == hints.keys()
    for name in honoured:
        key = BROKER_KEYS[name]
        nullable = key.default is None and name not in UNIT_CHAINS
        expected = PYTHON_TYPES[key.type]
        assert hints[key.attribute] == (expected | None if nullable else expected), name


def test_descriptions_are_one_line_and_end_with_a_point() -> None:
    for key in [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]:
        assert key.doc is None or (key.doc.endswith(".") and "\n" not in key.doc), key.name
    assert not HONOURED & ZOOKEEPER_NAMES


def test_a_topic_key_has_an_effect_if_its_broker_key_has() -> None:
    with_effect = {topic for topic, broker in TOPIC_SYNONYMS.items() if broker in HONOURED}
    of_topics_alone = {
        "errors.deadletterqueue.group.enable", "follower.replication.throttled.replicas",
        "internal.segment.bytes", "leader.replication.throttled.replicas",
    }  # fmt: skip
    assert with_effect | of_topics_alone == HONOURED_OF_TOPICS


def test_what_is_said_to_have_an_effect_is_read_somewhere() -> None:
    root = Path(__file__).parents[3]
    files = [path for room in ("server", "storage") for path in (root / room).rglob("*.py")]
    rules = {"config.py", "log_config.py", "dynamic_config.py"}
    code = "\n".join(path.read_text() for path in files if path.parent.name != "configs" and path.name not in rules)
    read = set(re.findall(r"(?<=\.)[a-z_]+\b", code))
    topics = {broker: topic for topic, broker in TOPIC_SYNONYMS.items()}
    # `DynamicConfig.group_config` returns the broker's setting for a group without its own.
    outside = "\n".join(path.read_text() for path in files if not path.is_relative_to(root / "server" / "config"))
    of_groups = {broker for group, broker in GROUP_SYNONYMS.items() if f'"{group}"' in outside}
    unread = []
    for name in HONOURED - DERIVED - CHECKED_HERE - READ_BY_NAME - of_groups:
        attribute = topics.get(name, name).replace(".", "_")
        if attribute not in read and BROKER_KEYS[name].attribute not in read:
            unread.append(name)
    assert unread == []


def test_what_is_said_to_have_no_effect_is_read_nowhere() -> None:
    root = Path(__file__).parents[3] / "server"
    code = "\n".join(path.read_text() for path in root.rglob("*.py") if "config" not in path.relative_to(root).parts)
    named = {text for pair in re.findall(r'"([a-z.]+)"|\.([a-z_]+)\b', code) for text in pair}
    # A login of this broker's at others is told its JAAS string by that name; brokers read it by listener.
    idle = (BROKER_KEYS.keys() | TOPIC_KEYS.keys()) - HONOURED - HONOURED_OF_TOPICS
    idle.discard("sasl.jaas.config")
    # The name of a field of registrations and heartbeats in KRaft clusters.
    idle.discard("cordoned.log.dirs")
    # A standalone broker that joins a KRaft cluster removes it from topics, as Kafka 4 has no such setting.
    idle.discard("message.downconversion.enable")
    assert [name for name in sorted(idle) if name in named or name.replace(".", "_") in named] == []


@pytest.mark.parametrize(
    ("properties", "expected_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_milliseconds_beat_minutes_beat_hours(properties: dict[str, str], expected_ms: int) -> None:
    config = BrokerConfig.from_properties(properties)
    assert config.log_retention_ms == expected_ms
    assert config.topic_defaults()["retention.ms"] == str(expected_ms)


def test_get_returns_a_keys_own_value() -> None:
    config = BrokerConfig({"log.retention.hours": "2", "num.io.threads": "9", "my.own": "x"})
    assert config.get("log.retention.hours") == 2
    assert config.get("log.retention.ms") is None
    assert config.get("num.io.threads") == 9
    assert config.get("zookeeper.session.timeout.ms") == 18000
    assert config.get("my.own") == "x"
    assert config.get("nobody.knows") is None


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(
        "# caf\u00e9\nbroker.rack = caf\u00e9\\u0301 \nlog.dirs=/a, \\\n  /b\nnum.partitions:3\n".encode("latin-1")
    )
    config = BrokerConfig.from_file(path)
    assert config.broker_rack == "caf\u00e9\u0301"
    assert config.log_dirs == ["/a", "/b"]
    assert config.num_partitions == 3


@pytest.mark.parametrize(
    ("properties", "key", "allowed"),
    [
        ({"num.partitions": "0"}, "num.partitions", "at least 1"),
        ({"num.partitions": "many"}, "num.partitions", "Not a number of type INT"),
        ({"num.partitions": "1_000"}, "num.partitions", "Not a number of type INT"),
        ({"num.partitions": "2147483648"}, "num.partitions", "Not a number of type INT"),
        ({"delete.topic.enable": "yes"}, "delete.topic.enable", "true or false"),
        ({"compression.type": "brotli"}, "compression.type", "uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"log.cleanup.policy": "delete,shred"}, "log.cleanup.policy", "compact, delete"),
        ({"acks.all.durability": "tape"}, "acks.all.durability", "disk, page-cache"),
        ({"log.retention.ms": "0"}, "log.retention.ms", "-1 for unlimited, or at least 1"),
        ({"log.retention.hours": "-2"}, "log.retention.hours", "-1 for unlimited, or at least 1"),
        ({"log.roll.ms": "0"}, "log.roll.ms", "at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms", "at least 0"),
        ({"log.flush.interval.ms": "-1"}, "log.flush.interval.ms", "at least 0"),
        ({"log.retention.bytes": "-2"}, "log.retention.bytes", "at least -1"),
        ({"broker.id": "1", "node.id": "2"}, "node.id", "must equal broker.id, which is 1"),
        ({"log.cleaner.dedupe.buffer.size": "1024"}, "log.cleaner.dedupe.buffer.size", "1 MiB for each"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip", "overrides lets some address in"),
        (
            {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:0"},
            "max.connections.per.ip",
            "overrides lets some address in",
        ),
        ({"max.connections.per.ip.overrides": "a:b"}, "max.connections.per.ip.overrides", "address:count"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes", "at least socket.request.max.bytes"),
        ({"replica.fetch.wait.max.ms": "99999999"}, "replica.fetch.wait.max.ms", "at most"),
        ({"group.consumer.session.timeout.ms": "5"}, "group.consumer.session.timeout.ms", "between"),
        ({"process.roles": "controller"}, "process.roles", "Add the role broker"),
        ({"process.roles": "broker,king"}, "process.roles", "broker, controller"),
        (
            {"listeners": "PLAINTEXT://:9092", "allow.insecure.listeners": "false"},
            "listeners",
            "allow.insecure.listeners=true",
        ),
        (
            {"listener.name.plaintext.max.connection.creation.rate": "many"},
            "max.connection.creation.rate",
            "Not a number",
        ),
        ({"listeners": "PLAINTEXT://10.0.0.1:9092"}, "listeners", "without authentication"),
        ({"listeners": "SSL://:9092", "ssl.client.auth": "requested"}, "listeners", "without authentication"),
    ],
)
def test_a_refusal_names_key_value_and_what_is_allowed(properties: dict[str, str], key: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerConfig(properties)
    assert f"for configuration {key}: " in str(error.value)
    assert allowed in str(error.value)


def test_connections_are_limited_by_address_but_not_from_this_machine() -> None:
    config = BrokerConfig({"max.connections.per.ip": "7", "max.connections.per.ip.overrides": "10.0.0.1:9,127.0.0.2:3"})
    limits = {
        host: config.connections_allowed(host) for host in ("10.0.0.1", "10.0.0.2", "127.0.0.2", "127.0.0.1", "::1")
    }
    assert limits == {"10.0.0.1": 9, "10.0.0.2": 7, "127.0.0.2": 3, "127.0.0.1": None, "::1": None}
    assert BrokerConfig().connections_allowed("2001:db8::1") == 1000


def test_an_address_that_connections_are_limited_by_may_be_written_in_any_form() -> None:
    config = BrokerConfig({"max.connections.per.ip.overrides": "2001:DB8:0:0::1:5,[2001:db8::2]:6"})
    assert [config.connections_allowed(host) for host in ("2001:db8::1", "2001:db8::2")] == [5, 6]
    assert config.startup_warnings == ()


def test_names_that_connections_are_limited_by_are_told_to_have_no_effect() -> None:
    config = BrokerConfig({"max.connections.per.ip.overrides": "clients.example:5,10.0.0.1:6"})
    assert config.connections_allowed("10.0.0.1") == 6
    assert config.startup_warnings == (
        "max.connections.per.ip.overrides is about addresses; without effect: clients.example",
    )


def test_listeners_that_ask_who_is_there_are_open_to_all() -> None:
    BrokerConfig({"listeners": "SSL://:9092,SASL_SSL://:9093", "listener.name.ssl.ssl.client.auth": "required"})


def test_strict_listeners_may_be_had_on_loopback() -> None:
    BrokerConfig({"allow.insecure.listeners": "false", "listeners": "PLAINTEXT://127.0.0.1:0"})


def test_a_mistyped_key_is_named_with_the_one_that_was_meant() -> None:
    config = BrokerConfig({"num.partitons": "3", "log.retention.huors": "1", "my.own": "x"})
    assert config.startup_warnings == (
        "Unknown configuration keys, kept without effect: log.retention.huors (is log.retention.hours meant?), "
        "my.own, num.partitons (is num.partitions meant?)",
    )


def test_unknown_keys_are_kept_and_named_once_together() -> None:
    config = BrokerConfig({"zeta": "1", "alpha": "2", "listener.name.plaintext.max.connections": "3"})
    assert config.startup_warnings == ("Unknown configuration keys, kept without effect: alpha, zeta",)
    assert config.static["zeta"] == "1"
    assert config.listener_value("PLAINTEXT", "max.connections") == 3
    assert config.listener_value("OTHER", "max.connections") == 20000


def test_what_is_asked_for_in_vain_is_named_once_together() -> None:
    config = BrokerConfig({"num.io.threads": "16", "log.cleaner.threads": "2", "num.network.threads": "2"})
    assert config.startup_warnings == ("Accepted without effect: num.io.threads, num.network.threads",)


@pytest.mark.parametrize(
    ("protocol", "counts"), [(None, False), ("3.9-IV0", False), ("3.0-IV1", False), ("3.0-IV0", True), ("2.8", True)]
)
def test_a_format_of_messages_that_does_not_count_is_named(protocol: str | None, counts: bool) -> None:
    settings = {} if protocol is None else {"inter.broker.protocol.version": protocol}
    sentence = (
        "log.message.format.version=2.8 is ignored: it counts only while inter.broker.protocol.version is below 3.0"
    )
    config = BrokerConfig(settings | {"log.message.format.version": "2.8"})
    assert config.startup_warnings == (() if counts else (sentence,))
    default = BROKER_KEYS["log.message.format.version"].default
    assert (
        BrokerConfig(settings | ({"log.message.format.version": str(default)} if not counts else {})).startup_warnings
        == ()
    )


def test_what_a_listener_was_asked_for_changes_with_the_settings() -> None:
    config, own = BrokerConfig({}), "listener.name.plaintext.max.connections"

    def allowed() -> int:
        return config.listener_connections_allowed("PLAINTEXT")

    assert allowed() == config.max_connections
    config.apply_overrides({"max.connections": "7"}, {})
    assert allowed() == 7
    config.apply_overrides({"max.connections": "7"}, {own: "3"})
    assert allowed() == 3
    config.apply_overrides({}, {})
    assert allowed() == config.max_connections


def test_what_is_for_an_authorizer_is_not_passed_over_in_silence_where_there_is_none() -> None:
    (notice,) = BrokerConfig({"super.users": "User:anna"}).startup_warnings
    assert "authorizer.class.name" in notice and "all permissions" in notice and "super.users" in notice
    assert BrokerConfig({"super.users": "User:anna", "authorizer.class.name": "any"}).startup_warnings == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (-12.25, "-12.25"),
        (0.001, "0.001"),
        (0.00095, "9.5E-4"),
        (1e-05, "1.0E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-1e22, "-1.0E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "5.0E-324"),
        (float("inf"), "Infinity"),
    ],
)
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert java_double(value) == text


def test_dynamic_layers_win_in_their_order_and_displace_other_units() -> None:
    config = BrokerConfig({"log.retention.hours": "2", "message.max.bytes": "10"})
    changed = config.apply_overrides({"log.retention.ms": "5", "message.max.bytes": "20"}, {"message.max.bytes": "30"})
    assert changed == {"log.retention.ms", "log.retention.hours", "message.max.bytes"}
    assert (config.log_retention_ms, config.message_max_bytes) == (5, 30)
    assert config.apply_overrides({"message.max.bytes": "20"}, {}) == changed
    assert (config.log_retention_ms, config.message_max_bytes) == (7_200_000, 20)
    assert config.apply_overrides({"message.max.bytes": "20"}, {}) == frozenset()
    assert config.apply_overrides({}, {}) == {"message.max.bytes"}
    assert config.message_max_bytes == 10


def test_a_refused_change_changes_nothing() -> None:
    config = BrokerConfig()
    config.apply_overrides({"message.max.bytes": "20"}, {})
    with pytest.raises(ConfigError):
        config.apply_overrides({"message.max.bytes": "30", "log.roll.ms": "0"}, {})
    assert config.message_max_bytes == 20
    assert config.cluster_overrides == {"message.max.bytes": "20"}


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"log.dirs": ""}, "Configuration 'log.dirs' must not be empty. Valid values include: any non-empty value"),
        ({"log.dirs": ","}, "Configuration 'log.dirs' values must not be empty."),
        ({"listeners": ""}, "Configuration 'listeners' must not be empty. Valid values include: any non-empty value"),
        (
            {"group.coordinator.rebalance.protocols": ""},
            "Configuration 'group.coordinator.rebalance.protocols' must not be empty. Valid values include: "
            "[consumer, classic, share, streams]",
        ),
    ],
)
def test_lists_reject_empty_entries_in_kafkas_words(properties: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerConfig(properties)
    assert str(error.value) == sentence


def test_duplicates_in_a_list_are_removed_with_a_warning() -> None:
    config = BrokerConfig({"log.cleanup.policy": "delete,compact,delete", "log.dirs": "/a,/a,/b"})
    assert config.log_cleanup_policy == ("delete", "compact")
    assert config.log_dirs == ["/a", "/b"]
    assert config.startup_warnings == ("Duplicates are removed from lists: log.cleanup.policy, log.dirs",)
    assert BrokerConfig({"log.cleanup.policy": ""}).topic_defaults()["cleanup.policy"] == ""


def test_limits_of_share_and_streams_groups_hold_for_the_broker_too() -> None:
    for properties in (
        {"group.share.delivery.count.limit": "7", "group.share.max.delivery.count.limit": "6"},
        {"group.share.record.lock.duration.ms": "5000"},
        {"group.share.max.share.sessions": "100"},
        {"group.streams.num.standby.replicas": "3"},
        {"group.share.assignors": "simple,other"},
        {"group.consumer.assignment.interval.ms": "15001"},
        {"group.consumer.heartbeat.interval.ms": "50000", "group.consumer.max.heartbeat.interval.ms": "60000"},
    ):
        with pytest.raises(ConfigError):
            BrokerConfig(properties)
