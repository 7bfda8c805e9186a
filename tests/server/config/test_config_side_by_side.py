"""Apache Kafka 4.4.0 and this broker, asked the same: the same configuration and the same refusals come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaServer
from tests.server.config.config_client import ConfigClient
from tests.server_process import wait_until

from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult
from barnabas.server.config.document import DEVIATIONS
from barnabas.server.config.keys.catalogue import BROKER_KEYS, TOPIC_SYNONYMS
from barnabas.testing.broker import EMBEDDED_DEFAULTS

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

TOPIC, BROKER, METRICS = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.CLIENT_METRICS
GROUP = ConfigResourceType.GROUP
SET, DELETE, APPEND, SUBTRACT = ConfigOperation

DEADLINE_S = 60
WHERE = {"listeners", "advertised.listeners", "log.dirs", "log.dir", "controller.quorum.voters"}
"""Settings that two brokers on one machine cannot share."""
ELECTION = {"min.insync.replicas"}
"""Set for the whole cluster by a new KRaft cluster itself, on behalf of eligible leader replicas."""
OTHER = WHERE | ELECTION | {deviation.key for deviation in DEVIATIONS} | EMBEDDED_DEFAULTS.keys()
OTHER |= {topic for topic, broker in TOPIC_SYNONYMS.items() if broker in OTHER}


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the provider `file`."""
    return Path(tmp_path_factory.mktemp("secrets")) / "broker.properties"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, variables: Path) -> Iterator[tuple[ConfigClient, ConfigClient]]:
    """A client of Apache Kafka and one of this broker, with the same file and a topic `flights`."""
    secrets = variables.parent
    (secrets / "partitions").write_text("2")
    (secrets / "broker.properties").write_text("hours=3\nlast=seven\n")
    package = "org.apache.kafka.common.config.provider"
    properties = {
        "config.providers": "file,directory,env",
        "config.providers.file.class": f"{package}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(secrets),
        "config.providers.directory.class": f"{package}.DirectoryConfigProvider",
        "config.providers.env.class": f"{package}.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "BARNABAS_.*",
        "log.retention.hours": f"${{file:{secrets}/broker.properties:hours}}",
        "num.partitions": f"${{directory:{secrets}:partitions}}",
        "own.key": "${env:BARNABAS_OWN_KEY}",
        "own.missing": "${env:PATH} ${env:BARNABAS_MISSING} ${other:x}",
    }
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("BARNABAS_OWN_KEY", "value")
    folder: Path = tmp_path_factory.mktemp("kafka")
    with KafkaServer(folder, properties=properties) as kafka:
        shared = {key: value for key, value in kafka.server_properties().items() if key not in WHERE}
        with (
            BarnabasServer(tmp_path_factory.mktemp("barnabas"), properties=shared) as broker,
            closing(ConfigClient(kafka.bootstrap)) as theirs,
            closing(ConfigClient(broker.bootstrap)) as ours,
        ):
            for client in (theirs, ours):
                client.create_topic("flights")
            # The controller of Apache Kafka has made it before its broker knows.
            wait_until(lambda: not theirs.describe(TOPIC, "flights").error_code, timeout_s=DEADLINE_S, what="the topic")
            monkeypatch.undo()
            yield theirs, ours


def test_variables_in_values_that_are_set_at_run_time(both: tuple[ConfigClient, ConfigClient], variables: Path) -> None:
    hours, last = f"${{file:{variables}:hours}}", f"${{file:{variables}:last}}"
    package = "org.apache.kafka.common.config.provider"
    providers = [
        ("config.providers", SET, "file"),
        ("config.providers.file.class", SET, f"{package}.FileConfigProvider"),
    ]
    keys = ["log.retention.ms", "log.roll.ms", "config.providers", "message.max.bytes"]

    def value(client: ConfigClient, name: str, key: str) -> str | None:
        return next((one.value for one in client.describe(BROKER, name, [key]).configs), None)

    results = []
    for client in both:
        answers: list[Any] = [
            # The providers of the file alone do not count for values that are not text.
            client.edit(BROKER, "", ("log.retention.ms", SET, hours)),
            client.edit(BROKER, "", *providers, ("log.retention.ms", SET, hours)),
            client.edit(BROKER, "1", ("log.roll.ms", SET, hours)),
            client.edit(BROKER, "1", *providers, ("log.roll.ms", SET, hours)),
        ]
        for key in ("log.retention.ms", "log.roll.ms"):
            wait_until(lambda: value(client, "1", key) == "3", timeout_s=DEADLINE_S, what=key)  # noqa: B023
        answers += [
            client.edit(BROKER, "", ("message.max.bytes", SET, last)),
            client.edit(BROKER, "", ("message.max.bytes", SET, f"${{file:{variables}:none}}")),
            client.edit(BROKER, "", ("message.max.bytes", SET, "${other:x}")),
            client.edit(TOPIC, "flights", ("retention.ms", SET, hours)),
            client.edit(BROKER, "", ("config.providers", DELETE, None)),
        ]
        for name in ("1", ""):
            found = {one.name: one for one in client.describe(BROKER, name, keys).configs}
            answers += [
                (name, key, one.value, one.config_source, [(other.value, other.source) for other in one.synonyms])
                for key, one in sorted(found.items())
            ]
        answers += [
            client.edit(BROKER, "1", *((key, DELETE, None) for key in ("log.roll.ms", *(one[0] for one in providers)))),
            client.edit(
                BROKER, "", *((key, DELETE, None) for key in ("log.retention.ms", *(one[0] for one in providers)))
            ),
        ]
        results.append(answers)
    assert results[1] == results[0]
    assert results[0][1] == (0, None)


def test_variables_have_the_values_of_config_providers(both: tuple[ConfigClient, ConfigClient]) -> None:
    keys = ["log.retention.hours", "num.partitions", "own.key", "own.missing", "config.providers"]
    theirs, ours = (
        {config.name: config.value for config in client.describe(BROKER, "1", keys).configs} for client in both
    )
    assert theirs == ours
    assert [theirs[key] for key in keys[:2]] == ["3", "2"]


def comparable(config: DescribeConfigsResourceResult) -> tuple[Any, ...]:
    synonyms = [
        (synonym.name, synonym.value, synonym.source) for synonym in config.synonyms if synonym.name not in OTHER
    ]
    return (
        config.value,
        config.config_source,
        config.read_only,
        config.is_sensitive,
        config.config_type,
        synonyms,
    )


def differences(theirs: DescribeConfigsResult, ours: DescribeConfigsResult) -> dict[str, Any]:
    assert (theirs.error_code, ours.error_code) == (0, 0)
    mine = {config.name: comparable(config) for config in ours.configs}
    return {
        config.name: (comparable(config), mine.get(config.name))
        for config in theirs.configs
        if config.name not in OTHER and comparable(config) != mine.get(config.name)
    }


def test_a_topic_is_described_alike(both: tuple[ConfigClient, ConfigClient]) -> None:
    theirs, ours = (client.describe(TOPIC, "flights") for client in both)
    assert len(theirs.configs) > 30
    assert differences(theirs, ours) == {}


def test_a_broker_is_described_alike(both: tuple[ConfigClient, ConfigClient]) -> None:
    theirs, ours = (client.describe(BROKER, "1") for client in both)
    assert len(theirs.configs) > 250
    assert differences(theirs, ours) == {}
    assert {config.name for config in theirs.configs} - {config.name for config in ours.configs} == set()
    unknown = {config.name for config in ours.configs} - BROKER_KEYS.keys()
    assert {name for name in unknown if not name.startswith("config.providers.")} == {"own.key", "own.missing"}


CHANGES: tuple[tuple[int, str, tuple[tuple[str, int, str | None], ...]], ...] = (
    (TOPIC, "flights", (("retention.ms", SET, "5000"), ("cleanup.policy", APPEND, "compact"))),
    (BROKER, "", (("log.retention.ms", SET, "7000"), ("message.max.bytes", SET, "200000"))),
    (BROKER, "1", (("message.max.bytes", SET, "300000"), ("log.cleaner.threads", SET, "2"))),
    (TOPIC, "flights", (("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None))),
    (TOPIC, "flights", (("max.message.bytes", SET, " 99999 "), ("compression.type", SET, "zstd"))),
    (BROKER, "1", (("message.max.bytes", DELETE, ""), ("log.cleanup.policy", APPEND, "compact"))),
    (BROKER, "", (("log.retention.ms", DELETE, ""), ("compression.type", SET, "gzip"))),
    (METRICS, "x", (("metrics", SET, " a , b"), ("interval.ms", SET, "100"))),
    (METRICS, "x", (("metrics", SET, ""), ("match", SET, "client_id = a=,client_source_port=\\p{Digit}+"))),
    (METRICS, "x", (("metrics", DELETE, None), ("match", DELETE, None), ("interval.ms", DELETE, None))),
    (GROUP, "x", (("consumer.session.timeout.ms", SET, "50000"),)),
    (GROUP, "x", (("consumer.session.timeout.ms", DELETE, None),)),
)


def test_changes_have_the_same_effect(both: tuple[ConfigClient, ConfigClient]) -> None:
    theirs, ours = both
    for kind, name, changes in CHANGES:
        assert theirs.edit(kind, name, *changes) == ours.edit(kind, name, *changes) == (0, None)
        changed = [key for key, _, _ in changes]
        # What the controller of Apache Kafka has agreed to reaches its broker a moment later.
        for kind_2, name_2 in ((TOPIC, "flights"), (BROKER, "1"), (BROKER, ""), (METRICS, "x"), (GROUP, "x")):
            wait_until_alike(theirs, ours, kind_2, name_2, changed)


def wait_until_alike(theirs: ConfigClient, ours: ConfigClient, kind: int, name: str, changed: list[str]) -> None:
    mine = ours.describe(kind, name)
    deadline = time.monotonic() + DEADLINE_S
    while found := differences(theirs.describe(kind, name), mine):
        assert time.monotonic() < deadline, f"after a change of {changed}, {kind} {name!r}: {found}"


REFUSED: tuple[tuple[int, str, tuple[tuple[str, int, str | None], ...]], ...] = (
    (TOPIC, "nobody", (("retention.ms", SET, "1"),)),
    (TOPIC, "a b", (("retention.ms", SET, "1"),)),
    (TOPIC, "", (("retention.ms", SET, "1"),)),
    (TOPIC, "flights", (("no.such.key", SET, "1"),)),
    (TOPIC, "flights", (("retention.ms", SET, "soon"),)),
    (TOPIC, "flights", (("retention.ms", SET, "-2"),)),
    (TOPIC, "flights", (("retention.ms", SET, None),)),
    (TOPIC, "flights", (("retention.ms", APPEND, "1"),)),
    (TOPIC, "flights", (("retention.ms", SUBTRACT, "1"),)),
    (TOPIC, "flights", (("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
    (TOPIC, "flights", (("retention.ms", SET, "1"), ("retention.ms", DELETE, None))),
    (TOPIC, "flights", (("cleanup.policy", SET, "shred"),)),
    (TOPIC, "flights", (("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5"))),
    (TOPIC, "flights", (("remote.storage.enable", SET, "true"),)),
    (BROKER, "1", (("broker.id", SET, "2"),)),
    (BROKER, "1", (("num.partitions", SET, "2"), ("max.connections", SET, "5"))),
    (BROKER, "1", (("ssl.keystore.location", SET, "/x"),)),
    (BROKER, "", (("sasl.jaas.config", SET, "x"),)),
    (BROKER, "", (("log.cleaner.threads", SET, "many"),)),
    (BROKER, "", (("compression.type", SET, "brotli"),)),
    (BROKER, "2", (("message.max.bytes", SET, "5"),)),
    (BROKER, "x", (("message.max.bytes", SET, "5"),)),
    (ConfigResourceType.BROKER_LOGGER, "1", (("no.such.logger", SET, "INFO"),)),
    (METRICS, "", (("metrics", SET, "a"),)),
    (METRICS, "x", (("no.such.key", SET, "a"),)),
    (METRICS, "x", (("metrics", APPEND, "a"),)),
    (METRICS, "x", (("metrics", SET, None),)),
    *((METRICS, "x", (("interval.ms", SET, interval),)) for interval in ("soon", "99", "3600001", "")),
    *((METRICS, "x", (("match", SET, match),)) for match in ("a=b", "client_id", "client_id=", "client_id==a", "=a")),
    *((METRICS, "x", (("match", SET, match),)) for match in ("client_id=a,,", "client_id=[a", "client_id=a{2,3}")),
    (77, "x", (("a", SET, "b"),)),
)


@pytest.mark.parametrize(("kind", "name", "changes"), REFUSED)
def test_changes_are_refused_alike(both: tuple[ConfigClient, ConfigClient], kind: int, name: str, changes: Any) -> None:
    theirs, ours = both
    answer = theirs.edit(kind, name, *changes)
    assert answer[0] != 0
    # A set of Scala says which kind of set it is.
    assert ours.edit(kind, name, *changes) == answer


@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize("key", ["max.connections", "max.connection.creation.rate"])
def test_neither_lets_itself_be_locked(both: tuple[ConfigClient, ConfigClient], name: str, key: str) -> None:
    for client in both:
        code, message = client.edit(BROKER, name, (key, SET, "0"))
        # Apache Kafka says it within an exception's name.
        assert code == ErrorCode.INVALID_REQUEST and f"Invalid {key} 0" in str(message)


REGEXES_OF_JAVA = r"""
    a.*b   ^a|$   |   a|*   a|{2}   \d+\.\d+   10\.0\.[0-9]+\..*   \bfoo-[0-9]+\b   é   \
    (   )   ()   (?   (?a)   (?i   (?>a)   (?!a)   (?<!ab|c)d   (?<!a+b)   (?#a)   (?i)a   a(?i)b   (?i:a)b   (?x-s:a)
    (?<n>a)\k<n>   (?<1a>b)   (?P<n>a)   (?P=n)   \k<n>   (a)\1   \2   (?:a|b){3}+
    \p{Alpha}+   \pL   \P{Lu}   \Qa[\E   \Qa[   \x{41}   \x{4   \z   \Z   \h   \y   \cA
    a{2}   a{2   {2}   a{x}   a{9999999999}   a}   *   a**   a*+   a++b   a?+
    ]   []   []a]   [^]a]   [b-a]   [a[b]]   [[a]   [a]]   [{]   [\w.-]+   [a-\d]   [\p{L}&&[^a]]
"""
"""Written as most people do, as few do, and as nobody should."""


def test_regular_expressions_are_taken_and_refused_alike(both: tuple[ConfigClient, ConfigClient]) -> None:
    different = {}
    for regex in REGEXES_OF_JAVA.split():
        theirs, ours = (client.edit(METRICS, "y", ("match", SET, f"client_id={regex}")) for client in both)
        if theirs != ours:
            different[regex] = theirs, ours
    assert different == {}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TOPIC, "nobody"),
        (TOPIC, "a b"),
        (TOPIC, ""),
        (BROKER, "2"),
        (BROKER, "x"),
        (ConfigResourceType.BROKER_LOGGER, ""),
        (ConfigResourceType.BROKER_LOGGER, "2"),
        (ConfigResourceType.CLIENT_METRICS, ""),
        (ConfigResourceType.GROUP, ""),
    ],
)
def test_descriptions_are_refused_alike(both: tuple[ConfigClient, ConfigClient], kind: int, name: str) -> None:
    theirs, ours = (client.describe(kind, name) for client in both)
    assert theirs.error_code != 0
    assert ours.error_code == theirs.error_code
    assert ours.error_message
    assert theirs.error_message in ("", None, ours.error_message)


def test_groups_and_client_metrics_are_described_alike(both: tuple[ConfigClient, ConfigClient]) -> None:
    for kind in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
        theirs, ours = (client.describe(kind, "anybody") for client in both)
        assert theirs.configs
        assert differences(theirs, ours) == {}
        assert len(theirs.configs) == len(ours.configs)
