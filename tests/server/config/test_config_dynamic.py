"""Changes at run time: what is allowed, what wins, who hears of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.dynamic_config import DynamicConfig, topic_log_config
from barnabas.server.config.keys.catalogue import TOPIC_SYNONYMS, synonyms
from barnabas.server.config.keys.validators import ConfigError
from barnabas.storage.log_config import NEVER, LogConfig

TEXTS = ("", "0", "1", "-1", "-2", "5", " 7 ", "9223372036854775807", "0.5", "0.75d", "true", "delete", "gzip", "2.8")


class Kept:
    """A store that holds what it was given."""

    def __init__(
        self, cluster: dict[str, str], broker: dict[str, str], topics: dict[str, dict[str, str]] | None = None
    ) -> None:
        self.cluster, self.broker, self.topics = cluster, broker, topics or {}

    async def broker_config(self, broker_id: int | None) -> dict[str, str]:
        return self.cluster if broker_id is None else self.broker

    readable_broker_config = broker_config

    async def set_broker_config(self, broker_id: int | None, config: Mapping[str, str]) -> None:
        raise AssertionError("nothing is to be stored")

    async def topic_configs(self) -> dict[str, dict[str, str]]:
        return self.topics

    async def named_configs(self, entity_type: str) -> dict[str, dict[str, str]]:
        return {}


def refusal(dynamic: DynamicConfig, settings: dict[str, str], *, per_broker: bool) -> str:
    with pytest.raises(KafkaError) as error:
        dynamic.check_broker_config(settings, per_broker=per_broker)
    assert error.value.code == ErrorCode.INVALID_REQUEST
    return error.value.message


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [("7", None), ("28", None), ("6", "at least half the current value 14"), ("29", "greater than double"), ("0", "1")],
)
def test_pools_of_threads_change_by_a_factor_of_two_at_most(wanted: str, reason: str | None) -> None:
    dynamic = DynamicConfig(BrokerConfig({"num.replica.fetchers": "14"}))
    settings = {"num.replica.fetchers": wanted}
    for per_broker in (True, False):
        if reason is None:
            dynamic.check_broker_config(settings, per_broker=per_broker)
        else:
            assert reason in refusal(dynamic, settings, per_broker=per_broker)


def test_a_topic_without_settings_behaves_as_the_broker_says() -> None:
    assert topic_log_config(BrokerConfig()) == LogConfig()
    config = BrokerConfig(
        {
            "log.retention.minutes": "2",
            "log.roll.hours": "1",
            "log.segment.bytes": "2048",
            "log.cleanup.policy": "compact,delete",
            "message.max.bytes": "100",
            "log.flush.scheduler.interval.ms": "3000",
            "log.message.timestamp.type": "LogAppendTime",
        }
    )
    log_config = topic_log_config(config)
    assert (log_config.retention_ms, log_config.segment_ms, log_config.segment_bytes) == (120_000, 3_600_000, 2048)
    assert (log_config.compact, log_config.delete, log_config.max_message_bytes) == (True, True, 100)
    assert (log_config.flush_ms, log_config.message_timestamp_type) == (3000, "LogAppendTime")


def test_topic_beats_broker_beats_cluster_beats_file_beats_default() -> None:
    config = BrokerConfig()
    values = [topic_log_config(config).retention_ms]
    config = BrokerConfig({"log.retention.hours": "1", "log.retention.minutes": "2"})
    values.append(topic_log_config(config).retention_ms)
    config.apply_overrides({"log.retention.ms": "3"}, {})
    values.append(topic_log_config(config).retention_ms)
    config.apply_overrides({"log.retention.ms": "3"}, {"log.retention.ms": "4"})
    values.append(topic_log_config(config).retention_ms)
    values.append(topic_log_config(config, {"retention.ms": "5"}).retention_ms)
    assert values == [604_800_000, 120_000, 3, 4, 5]


@pytest.mark.parametrize(
    ("settings", "before_ms", "after_ms"),
    [
        ({}, NEVER, NEVER),
        ({"message.timestamp.difference.max.ms": "7"}, 7, 7),
        ({"message.timestamp.difference.max.ms": "7", "message.timestamp.before.max.ms": "3"}, 3, 7),
        ({"message.timestamp.after.max.ms": "9"}, NEVER, 9),
    ],
)
def test_the_older_timestamp_limit_speaks_for_those_that_are_not_set(
    settings: dict[str, str], before_ms: int, after_ms: int
) -> None:
    log_config = topic_log_config(BrokerConfig(), settings)
    assert (log_config.message_timestamp_before_max_ms, log_config.message_timestamp_after_max_ms) == (
        before_ms,
        after_ms,
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"retention.ms": "x"}, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_a_topics_settings_are_refused_in_kafkas_words(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(KafkaError) as error:
        DynamicConfig(BrokerConfig()).check_topic_config(settings)
    assert (error.value.code, error.value.message) == (ErrorCode.INVALID_CONFIG, reason)


def test_what_kafka_takes_as_a_value_reaches_the_log() -> None:
    settings = {"retention.ms": " +5 ", "preallocate": "TRUE", "min.cleanable.dirty.ratio": "0.75d"}
    settings |= {"cleanup.policy": "delete , compact"}
    log_config = topic_log_config(BrokerConfig(), settings)
    assert (log_config.retention_ms, log_config.preallocate) == (5, True)
    assert (log_config.min_cleanable_dirty_ratio, log_config.cleanup_policy) == (0.75, "delete,compact")


def test_whatever_broker_settings_are_legal_make_a_legal_log() -> None:
    for broker_key in TOPIC_SYNONYMS.values():
        for synonym in synonyms(broker_key):
            for text in TEXTS:
                try:
                    config = BrokerConfig({synonym: text})
                except ConfigError:
                    continue
                topic_log_config(config)


def test_a_topics_settings_take_effect_and_are_forgotten_with_it() -> None:
    dynamic = DynamicConfig(BrokerConfig())
    heard: list[str | None] = []
    dynamic.on_topic_change(heard.append)
    assert dynamic.topic_log_config("a") is dynamic.topic_log_config("b")
    dynamic.topic_config_changed("a", {"segment.bytes": "100"})
    assert dynamic.topic_log_config("a").segment_bytes == 100
    assert dynamic.topic_log_config("b").segment_bytes == 1 << 30
    dynamic.topic_config_changed("a", {"segment.bytes": "100"})
    dynamic.topic_config_changed("a", {})
    assert dynamic.topic_log_config("a").segment_bytes == 1 << 30
    dynamic.topic_config_changed("a", {"segment.bytes": "99"})
    dynamic.topic_config_changed("a", None)
    assert dynamic.topic_config("a") == {}
    assert heard == ["a", "a", "a"]


def test_a_change_of_the_broker_reaches_its_config_and_the_topics_that_it_concerns() -> None:
    config = BrokerConfig({"log.retention.hours": "1"})
    dynamic = DynamicConfig(config)
    topics: list[str | None] = []
    dynamic.on_topic_change(topics.append)
    dynamic.broker_config_changed({"max.connections": "7"}, per_broker=False)
    assert (config.max_connections, topics, config.log_retention_ms) == (7, [], 3_600_000)
    dynamic.broker_config_changed({"max.connections": "7", "log.retention.ms": "5"}, per_broker=True)
    assert (config.max_connections, topics, config.log_retention_ms) == (7, [None], 5)
    assert dynamic.topic_log_config("any").retention_ms == 5
    dynamic.broker_config_changed({}, per_broker=True)
    assert (config.max_connections, topics, config.log_retention_ms) == (7, [None, None], 3_600_000)
    dynamic.broker_config_changed({}, per_broker=False)
    assert config.max_connections == 20_000


def test_what_may_change_is_decided_as_in_kafka() -> None:
    dynamic = DynamicConfig(BrokerConfig())
    refused = refusal(dynamic, {"broker.id": "1", "log.dirs": "/x", "max.connections": "1"}, per_broker=True)
    assert refused == "Cannot update these configs dynamically: [broker.id, log.dirs]"
    refused = refusal(dynamic, {"ssl.keystore.location": "/x"}, per_broker=True)
    assert refused == (
        "These security configs can be dynamically updated only per-listener using the listener prefix: "
        "[ssl.keystore.location]"
    )
    refused = refusal(dynamic, {"sasl.jaas.config": "x"}, per_broker=False)
    assert refused == (
        "Cannot update these configs at default cluster level, broker id must be specified: [sasl.jaas.config]"
    )
    refused = refusal(dynamic, {"listener.name.plaintext.sasl.jaas.config": "x"}, per_broker=False)
    assert "broker id must be specified: [listener.name.plaintext.sasl.jaas.config]" in refused
    for name in ("max.connections", "max.connection.creation.rate", "num.network.threads"):
        dynamic.check_broker_config({f"listener.name.plaintext.{name}": "4"}, per_broker=False)
    refused = refusal(dynamic, {"log.cleaner.threads": "many"}, per_broker=False)
    assert refused == "Invalid value many for configuration log.cleaner.threads: Not a number of type INT"
    refused = refusal(dynamic, {"listener.name.plaintext.max.connections": "-1"}, per_broker=True)
    assert "max.connections: Value must be at least 0" in refused
    refused = refusal(dynamic, {"log.roll.ms": "0"}, per_broker=False)
    assert "log.roll.ms: Value must be at least 1" in refused
    dynamic.check_broker_config({"log.roll.ms": "5", "unknown.key": "x"}, per_broker=False)
    dynamic.check_broker_config({"leader.replication.throttled.rate": "5"}, per_broker=True)
    refused = refusal(dynamic, {"leader.replication.throttled.rate": "fast"}, per_broker=True)
    assert "Not a number of type LONG" in refused


async def test_what_is_stored_is_applied_at_start_without_what_has_become_illegal() -> None:
    dynamic = DynamicConfig(BrokerConfig())
    kept = Kept(
        {"max.connections": "5", "message.max.bytes": "big"},
        {"log.retention.ms": "9", "custom": "kept"},
        {"a": {"segment.bytes": "50", "retention.ms": "soon"}, "b": {}},
    )
    await dynamic.load(cast(Any, kept), 1)
    assert dynamic.config.max_connections == 5
    assert dynamic.config.message_max_bytes == 1048588
    assert dynamic.config.broker_overrides == {"log.retention.ms": "9", "custom": "kept"}
    assert dynamic.topic_config("a") == {"segment.bytes": "50"}
    assert (dynamic.topic_log_config("a").segment_bytes, dynamic.topic_log_config("a").retention_ms) == (50, 9)


async def test_stored_settings_that_contradict_each_other_do_not_stop_the_broker() -> None:
    dynamic = DynamicConfig(BrokerConfig())
    kept = Kept({"log.cleaner.dedupe.buffer.size": "5"}, {}, {"a": {"segment.bytes": "50"}})
    await dynamic.load(cast(Any, kept), 1)
    assert dynamic.config.cluster_overrides == {}
    assert dynamic.topic_log_config("a").segment_bytes == 50


PROVIDERS = {
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.properties"
    path.write_text("hours=3\nword=secret\n")
    return path


def with_file_provider() -> DynamicConfig:
    return DynamicConfig(BrokerConfig.from_properties(PROVIDERS))


def test_variables_are_replaced_in_values_that_are_set_at_run_time(secrets: Path) -> None:
    dynamic = with_file_provider()
    settings = {**PROVIDERS, "log.retention.ms": f"${{file:{secrets}:hours}}"}
    dynamic.check_broker_config(settings, per_broker=False)
    dynamic.broker_config_changed(settings, per_broker=False)
    config = dynamic.config
    assert config.log_retention_ms == 3 and dynamic.topic_log_config("t").retention_ms == 3
    assert config.cluster_overrides == settings, "the value is stored with its variable"
    secrets.write_text("hours=4")
    dynamic.broker_config_changed({"log.roll.ms": "7"}, per_broker=True)
    assert config.log_retention_ms == 4, "as in Kafka, each change reads the sources again"
    secrets.write_text("hours=x")
    with pytest.raises(ConfigError):
        dynamic.broker_config_changed({"log.roll.ms": "8"}, per_broker=True)
    assert (config.log_retention_ms, config.log_roll_ms) == (4, 7)


def test_text_of_a_listener_has_the_value_of_its_variable(secrets: Path) -> None:
    dynamic, key = with_file_provider(), "listener.name.plaintext.ssl.key.password"
    settings = {key: f"${{file:{secrets}:word}}"}
    dynamic.check_broker_config(settings, per_broker=True)
    dynamic.broker_config_changed(settings, per_broker=True)
    assert dynamic.config.free_value(key) == dynamic.config.dynamic_value(key) == "secret"
    assert dynamic.config.broker_overrides == settings


def test_the_value_of_a_variable_is_not_in_an_error(secrets: Path) -> None:
    raw = f"${{file:{secrets}:word}}"
    reason = refusal(with_file_provider(), {**PROVIDERS, "log.retention.ms": raw}, per_broker=False)
    assert reason == f"Invalid value {raw} for configuration log.retention.ms"
    reason = refusal(with_file_provider(), {"log.retention.ms": raw}, per_broker=False)
    assert reason == f"Invalid value {raw} for configuration log.retention.ms: Not a number of type LONG"


def test_only_the_file_of_the_broker_defines_config_providers(secrets: Path) -> None:
    raw = f"${{file:{secrets}:hours}}"
    for dynamic in (DynamicConfig(BrokerConfig({})), DynamicConfig(BrokerConfig.from_properties({}))):
        reason = refusal(dynamic, {**PROVIDERS, "log.retention.ms": raw}, per_broker=False)
        assert reason.endswith("the file of the broker does not define the config provider file. Add it there")
    allowed = BrokerConfig.from_properties({**PROVIDERS, "config.providers.file.param.allowed.paths": "/usr"})
    settings = {**PROVIDERS, "config.providers.file.param.allowed.paths": "/", "log.retention.ms": raw}
    assert "Not a number" in refusal(DynamicConfig(allowed), settings, per_broker=False)
    reason = refusal(with_file_provider(), {**PROVIDERS, "log.retention.ms": "${file:/dev/zero:x}"}, per_broker=False)
    assert reason == "Could not read properties from file /dev/zero"


async def test_stored_variables_are_replaced_at_start(secrets: Path) -> None:
    hours, word = (f"${{file:{secrets}:{key}}}" for key in ("hours", "word"))
    dynamic = with_file_provider()
    await dynamic.load(Kept({**PROVIDERS, "log.retention.ms": hours, "log.roll.ms": word}, {}), 1)  # type: ignore[arg-type]
    assert dynamic.config.log_retention_ms == 3
    assert dynamic.config.cluster_overrides == {**PROVIDERS, "log.retention.ms": hours}
