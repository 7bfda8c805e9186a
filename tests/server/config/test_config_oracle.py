"""Apache Kafka is the oracle of configuration keys: names, types, defaults, rules, update modes, synonyms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.java import compile_java, jars, run_java

from barnabas.server.config.document import DEVIATIONS
from barnabas.server.config.keys.catalogue import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    UNIT_CHAINS,
    synonyms,
)
from barnabas.server.config.keys.definition import ConfigKey, ConfigType
from barnabas.server.config.keys.own_keys import OWN_KEYS
from barnabas.server.config.keys.validators import ConfigError

pytestmark = pytest.mark.java

SOURCES = Path(__file__).parent / "config_oracle" / "keys"
OURS = {(deviation.resource, deviation.key, deviation.what): deviation.ours for deviation in DEVIATIONS}
NEWEST = "4.4.0"
VERSION_RULE = "a Kafka release, such as 2.8 or 2.8-IV1"


def kafka(version: str, *args: str, stdin: str = "") -> str:
    classpath = jars(f"org.apache.kafka:kafka_2.13:{version}")
    classes = compile_java(SOURCES, classpath)
    result = run_java("PrintConfigs", [classes, *classpath], args, stdin=stdin, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def newest() -> Any:
    """Every key as 4.4.0 defines it, or as the last older release did if 4.4.0 has dropped it."""
    merged: Any = {}
    for version in ("3.9.1", "4.1.1", NEWEST):
        printed = json.loads(kafka(version))
        for name, definition in printed["broker"].items():
            definition["mode"] = printed["modes"].get(name, "read-only")
        for kind, keys in printed.items():
            merged[kind] = {**merged.get(kind, {}), **keys}
    return merged


def ours(resource: str, key: ConfigKey) -> dict[str, Any]:
    definition = {
        "type": key.type.name,
        "default": key.format(key.default),
        "validator": None if key.validator is None else str(key.validator),
        "importance": key.importance.name,
        "internal": key.internal,
    }
    return definition | ({"mode": key.update_mode.value} if resource == "broker" else {})


@pytest.mark.parametrize(
    ("resource", "table"),
    [("broker", BROKER_KEYS), ("topic", TOPIC_KEYS), ("clientMetrics", CLIENT_METRICS_KEYS), ("group", GROUP_KEYS)],
)
def test_every_key_is_defined_as_in_kafka(resource: str, table: Any, newest: Any) -> None:
    own = {key.name for key in OWN_KEYS}
    theirs = {name: dict(definition) for name, definition in newest[resource].items()}
    for name, definition in theirs.items():
        if "0.10.0-IV0" in (definition["validator"] or ""):
            definition["validator"] = VERSION_RULE
        for what in definition:
            if (resource, name, what) in OURS:
                value = OURS[resource, name, what]
                assert definition[what] != value, f"{name} {what}: no deviation any more"
                definition[what] = value
    mine = {name: ours(resource, key) for name, key in table.items() if resource != "broker" or name not in own}
    assert mine.keys() == theirs.keys()
    assert {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]} == {}


def test_every_deviation_names_a_key() -> None:
    tables = {"broker": BROKER_KEYS, "topic": TOPIC_KEYS}
    assert [name for resource, name, _ in OURS if name not in tables[resource]] == []


def test_synonyms_of_broker_keys_are_kafkas(newest: Any) -> None:
    theirs = newest["brokerSynonyms"]
    assert {name: list(synonyms(name)) for name in theirs} == theirs


def test_group_keys_take_their_defaults_from_the_same_broker_keys(newest: Any) -> None:
    assert {name: GROUP_SYNONYMS.get(name) for name in GROUP_KEYS} == newest["groupSynonyms"]


def test_topic_keys_take_their_defaults_from_the_same_broker_keys(newest: Any) -> None:
    chains = {
        topic: [[name, str(factor)] for name, factor in UNIT_CHAINS.get(broker, ((broker, 1),))]
        for topic, broker in TOPIC_SYNONYMS.items()
    }
    assert chains == newest["topicSynonyms"]


TEXTS = (
    "", " ", "0", "1", "-1", "-2", "5", " 7 ", "+3", "08", "1e3", "0.5", ".5", "5.", "1e400", "0.75d", "1_000", "0x10",
    "32767", "32768", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "true", "TRUE", "False",
    "yes", "null", "delete", "compact,delete", "delete , compact", "gzip", "GZIP", "producer", "LogAppendTime", "a,,b",
    ",", "1:2", "1:2,3:4", "*", "1:2,*", "delete,delete", "a,b,a", "latest",
    "by_duration:PT1H", "by_duration:p1dt2.5s", "by_duration:PT-1S",
    "by_duration:P", "by_duration:PT", "by_duration:P1DT", "by_duration:-PT-1M", "by_duration", "read_committed",
    "upgrade", "UPGRADE", "broker,controller", "SASL_SSL", "none", "es256", "é",
)  # fmt: skip
"""What people write, and what they should not."""

NOT_APPLIED = {"controller.quorum.voters", "controller.quorum.bootstrap.servers"}
"""Rules of these are printed, not applied: there is no quorum."""
RELAXED = {name for _, name, what in OURS if what == "validator"}


def taken(key: ConfigKey, text: str) -> dict[str, str | None]:
    try:
        return {"value": key.format(key.parse(text))}
    except ConfigError as error:
        return {"error": str(error)}


def test_values_are_taken_and_refused_as_in_kafka() -> None:
    known = json.loads(kafka(NEWEST))
    asked = [
        (resource, key, text)
        for resource, table in (("broker", BROKER_KEYS), ("topic", TOPIC_KEYS), ("group", GROUP_KEYS))
        for key in table.values()
        for text in TEXTS
        if key.name in known[resource] and key.type is not ConfigType.CLASS and key.name not in NOT_APPLIED | RELAXED
    ]
    wishes = [json.dumps({"resource": resource, "name": key.name, "value": text}) for resource, key, text in asked]
    answers = [json.loads(line) for line in kafka(NEWEST, "parse", stdin="\n".join(wishes)).splitlines()]
    assert len(answers) == len(asked) > 10_000
    different = {
        (key.name, text): (taken(key, text), answer)
        for (_, key, text), answer in zip(asked, answers, strict=True)
        if taken(key, text) != answer
    }
    assert different == {}
