"""Settings from the variables of containers, as test libraries and compose files set them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from barnabas.common.jaas import jaas_options
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.tools.cli.container.environment import ContainerHost, ContainerSettings, container_settings
from barnabas.tools.cli.container.jaas import read_jaas_section

COMPOSE_FILES = Path(__file__).parents[2] / "docker/check/services"
ID = "4L6g3nShT-eMCtK--X86sw"


def in_container(
    environment: dict[str, str],
    base: str = "",
    *,
    files: dict[str, str] | None = None,
    mounts: tuple[str, ...] = (),
    answering: tuple[tuple[str, int], ...] = (),
) -> ContainerSettings:
    machine = ContainerHost(
        read_text=(files or {}).get,
        is_mount=lambda path: path in mounts,
        answers=lambda host, port: (host, port) in answering,
    )
    return container_settings(environment, base, machine)


class Service(NamedTuple):
    """A compose file, and the settings that a broker with its variables is expected to have."""

    file: str
    listening: dict[str, int]
    advertised: dict[str, str]
    settings: dict[str, object] = {}  # noqa: RUF012 - of a tuple, never changed
    log_dir: str = "/var/lib/barnabas"
    cluster_id: str | None = None
    warned: str = ""


def compose_services(file: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((COMPOSE_FILES / f"{file}.yml").read_text())["services"]
    return found


def variables_of(service: dict[str, Any]) -> dict[str, str]:
    """The environment of a service, which compose takes as a list or as a mapping."""
    given = service["environment"]
    if isinstance(given, list):
        return dict(one.split("=", 1) for one in given)
    return {name: str(value) for name, value in given.items()}


SERVICES = [
    Service(
        "apache-host-and-containers",
        {"INTERNAL": 29092, "EXTERNAL": 9092},
        {"INTERNAL": "kafka:29092", "EXTERNAL": "localhost:9092"},
        {"num.partitions": 3, "group.initial.rebalance.delay.ms": 0},
    ),
    Service(
        "apache-derived-listeners",
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "broker:9092"},
        {"node.id": 7, "broker.id": 7},
    ),
    Service(
        "apache-settings-only",
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "localhost:9092"},
        {"auto.create.topics.enable": False, "log.retention.hours": 24},
    ),
    Service(
        "apache-log-dirs",
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "events.internal:9092"},
        {"log.segment.bytes": 1 << 30, "broker.rack": "a", "log.retention.minutes": 10},
        log_dir="/tmp/kraft-combined-logs",
    ),
    Service(
        "confluent-kraft",
        {"PLAINTEXT": 29092, "PLAINTEXT_HOST": 9092},
        {"PLAINTEXT": "broker:29092", "PLAINTEXT_HOST": "localhost:9092"},
        log_dir="/var/lib/kafka/data",
        cluster_id="MkU3OEVBNTcwNTJENDM2Qk",
    ),
    Service(
        "confluent-zookeeper",
        {"PLAINTEXT": 29092, "PLAINTEXT_HOST": 9092},
        {"PLAINTEXT": "kafka:29092", "PLAINTEXT_HOST": "localhost:9092"},
        {"zookeeper.connect": "zookeeper:2181", "broker.id": 1},
    ),
    Service(
        "confluent-absent-zookeeper",
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "localhost:9092"},
        {"zookeeper.connect": None, "delete.topic.enable": True},
        warned="KAFKA_ZOOKEEPER_CONNECT=localhost:2181",
    ),
    Service(
        "confluent-typing-error",
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "kafka:9092"},
        warned="KAFKA_AUTO_CREATE_TOPIC_ENABLE (auto.create.topic.enable)",
    ),
    Service(
        "bitnami-kraft",
        {"PLAINTEXT": 9092, "EXTERNAL": 9094},
        {"PLAINTEXT": "kafka:9092", "EXTERNAL": "localhost:9094"},
        {"node.id": 1},
        log_dir="/bitnami/kafka/data",
        cluster_id="abcdefghijklmnopqrstuv",
    ),
    Service(
        "bitnami-both-prefixes",
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "127.0.0.1:9092"},
        {"broker.id": 3},
        log_dir="/bitnami/kafka/data",
    ),
    Service(
        "bitnami-users",
        {"PLAINTEXT": 9092, "EXTERNAL": 9094},
        {"PLAINTEXT": "kafka:9092", "EXTERNAL": "localhost:9094"},
        {"node.id": 0, "sasl.enabled.mechanisms": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")},
    ),
]


def test_each_compose_file_is_known() -> None:
    assert {path.stem for path in COMPOSE_FILES.iterdir()} == {service.file for service in SERVICES}


@pytest.mark.parametrize("service", SERVICES, ids=[service.file for service in SERVICES])
def test_a_compose_service_starts_with_another_image_only(service: Service) -> None:
    """`make containers` starts the compose file itself."""
    broker = next(
        one
        for name, one in compose_services(service.file).items()
        if name != "init" and one["image"] == "barnabas-broker"
    )
    mounts = tuple(volume.partition(":")[2] for volume in broker.get("volumes", ()))
    found = in_container(variables_of(broker), mounts=mounts)
    config = BrokerConfig.from_properties(found.properties)
    assert {one.name: one.port for one in config.listeners} == service.listening
    assert {one.name: f"{one.advertised_host}:{one.advertised_port}" for one in config.listeners} == service.advertised
    assert {name: config.get(name) for name in service.settings} == service.settings
    assert config.log_dirs == [service.log_dir]
    assert found.cluster_id == service.cluster_id
    assert [warning for warning in found.warnings if not service.warned or service.warned not in warning] == []
    assert bool(found.warnings) is bool(service.warned)
    assert not [line for line in config.startup_warnings if "Unknown configuration keys" in line]


SASL = {
    "KAFKA_CFG_LISTENERS": "CLIENT://:9092,INTERNAL://:9094,PLAINTEXT://:9095,CONTROLLER://:9093",
    "KAFKA_CFG_ADVERTISED_LISTENERS": "CLIENT://localhost:9092,INTERNAL://kafka:9094,PLAINTEXT://kafka:9095",
    "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": (
        "CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"
    ),
    "KAFKA_CFG_INTER_BROKER_LISTENER_NAME": "INTERNAL",
    "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CFG_PROCESS_ROLES": "broker,controller",
    "KAFKA_CFG_NODE_ID": "1",
}
TWO_USERS = {"KAFKA_CLIENT_USERS": "ann,bob", "KAFKA_CLIENT_PASSWORDS": 'a"1;b\\2'}


def test_users_of_bitnami_can_log_in_at_each_sasl_listener() -> None:
    found = in_container({**SASL, **TWO_USERS, "KAFKA_CONTROLLER_USER": "c", "KAFKA_CONTROLLER_PASSWORD": "d"})
    config = BrokerConfig.from_properties(found.properties)
    assert config.get("sasl.enabled.mechanisms") == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    for listener in ("client", "internal"):
        options = jaas_options(found.properties[f"listener.name.{listener}.plain.sasl.jaas.config"])
        assert options == {"user_ann": 'a"1', "user_bob": "b\\2"}
    assert "listener.name.plaintext.plain.sasl.jaas.config" not in found.properties
    assert sorted((one.name, one.mechanism, one.password) for one in found.logins) == [
        ("ann", "SCRAM-SHA-256", 'a"1'),
        ("ann", "SCRAM-SHA-512", 'a"1'),
        ("bob", "SCRAM-SHA-256", "b\\2"),
        ("bob", "SCRAM-SHA-512", "b\\2"),
    ]
    assert found.client["sasl.mechanism"] == "SCRAM-SHA-512"
    assert jaas_options(found.client["sasl.jaas.config"]) == {"username": "ann", "password": 'a"1'}
    assert found.warnings == []


def test_the_inter_broker_user_logs_in_at_each_listener_and_settings_override_the_derived_ones() -> None:
    given = {
        **SASL,
        **TWO_USERS,
        "KAFKA_INTER_BROKER_USER": "inner",
        "KAFKA_INTER_BROKER_PASSWORD": "p",
        "KAFKA_CFG_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256",
        "KAFKA_CFG_LISTENER_NAME_CLIENT_PLAIN_SASL_JAAS_CONFIG": "x required user_z=y;",
    }
    found = in_container(given)
    inner = jaas_options(found.properties["listener.name.internal.plain.sasl.jaas.config"])
    assert inner == {"username": "inner", "password": "p", "user_ann": 'a"1', "user_bob": "b\\2", "user_inner": "p"}
    assert found.properties["listener.name.client.plain.sasl.jaas.config"] == "x required user_z=y;"
    assert {(one.name, one.mechanism) for one in found.logins} == {
        (name, "SCRAM-SHA-256") for name in ("ann", "bob", "inner")
    }


def test_passwords_of_bitnami_can_be_in_a_file() -> None:
    given = {**SASL, "KAFKA_CLIENT_USERS": "ann", "KAFKA_CLIENT_PASSWORDS_FILE": "/run/secrets/p"}
    found = in_container(given, files={"/run/secrets/p": "secret\n"})
    assert {one.password for one in found.logins} == {"secret"}
    assert found.warnings == []
    with pytest.raises(ValueError, match="KAFKA_CLIENT_PASSWORDS_FILE=/run/secrets/p: no such file"):
        in_container(given)


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        ({"KAFKA_CFG_NODE_ID": "1", **TWO_USERS}, "KAFKA_CLIENT_USERS: no listener uses SASL"),
        (
            {"KAFKA_CFG_NODE_ID": "1", "KAFKA_INTER_BROKER_USER": "x", "KAFKA_INTER_BROKER_PASSWORD": "p"},
            "KAFKA_INTER_BROKER_USER: no listener uses SASL",
        ),
        ({**SASL, **TWO_USERS, "KAFKA_CLIENT_LISTENER_NAME": "OUT"}, "KAFKA_CLIENT_LISTENER_NAME=OUT: no listener"),
        ({**SASL, **TWO_USERS, "KAFKA_INTER_BROKER_USER": "x"}, "KAFKA_INTER_BROKER_PASSWORD is not set"),
        ({**SASL, "KAFKA_CLIENT_USERS": "a@b", "KAFKA_CLIENT_PASSWORDS": "p"}, "PLAIN does not support the names a@b"),
        ({**SASL, **TWO_USERS, "KAFKA_TLS_TYPE": "JKS"}, "KAFKA_TLS_TYPE (tls.type)"),
    ],
)
def test_a_variable_for_users_without_effect_is_named(given: dict[str, str], warning: str) -> None:
    (found,) = in_container(given).warnings
    assert warning in found


def test_users_and_passwords_have_the_same_number_and_there_is_no_default_password() -> None:
    with pytest.raises(ValueError, match="KAFKA_CLIENT_USERS has 2 names, and KAFKA_CLIENT_PASSWORDS 1 passwords"):
        in_container({**SASL, "KAFKA_CLIENT_USERS": "a,b", "KAFKA_CLIENT_PASSWORDS": "hidden"})
    with pytest.raises(ValueError, match="required for the listener CLIENT, INTERNAL"):
        in_container(SASL)


def test_without_variables_the_file_is_the_base_and_own_variables_win() -> None:
    base = "listeners=A://0.0.0.0:1\nlistener.security.protocol.map=A:PLAINTEXT\nnum.partitions=2\n"
    found = in_container({"KAFKA_NUM_PARTITIONS": "3", "BARNABAS_CONFIG_NUM_PARTITIONS": "4", "HOME": "/"}, base)
    assert found.properties["listeners"] == "A://0.0.0.0:1"
    assert found.properties["num.partitions"] == "4"


def test_a_mounted_volume_of_another_image_is_preferred_to_the_folder_of_the_image() -> None:
    own = "log.dirs=/var/lib/barnabas\n"
    mounts = ("/var/lib/kafka/data",)
    assert in_container({}, own).properties["log.dirs"] == "/var/lib/barnabas"
    assert in_container({}, own, mounts=mounts).properties["log.dirs"] == "/var/lib/kafka/data"
    named = {"BARNABAS_CONFIG_LOG_DIRS": "/var/lib/barnabas"}
    assert in_container(named, own, mounts=mounts).properties["log.dirs"] == "/var/lib/barnabas"


def test_an_own_variable_without_a_meaning_is_named() -> None:
    given = {"BARNABAS_NUM_PARTITIONS": "3", "BARNABAS_CONSOL": "1", "BARNABAS_CONSOLE_TOKEN": "x"}
    (warning,) = in_container({**given, "BARNABAS_CONFIG_NUM_PARTITIONS": "3", "HOME": "/"}).warnings
    assert "ignored: BARNABAS_CONSOL, BARNABAS_NUM_PARTITIONS. " in warning


def test_dots_underscores_and_dashes_of_keys() -> None:
    name = "KAFKA_LISTENER_NAME_SASL__HOST_SCRAM___SHA___256_SASL_JAAS_CONFIG"
    other = "KAFKA_LISTENER_NAME_SECURE_SCRAM-SHA-256_SASL_JAAS_CONFIG"
    properties = in_container({name: "x", other: "y"}).properties
    assert properties["listener.name.sasl_host.scram-sha-256.sasl.jaas.config"] == "x"
    assert properties["listener.name.secure.scram-sha-256.sasl.jaas.config"] == "y"


def test_bitnami_advertises_the_host_name() -> None:
    properties = in_container({"KAFKA_CFG_NODE_ID": "0"}).properties
    assert properties["listeners"] == "PLAINTEXT://:9092"
    assert "advertised.listeners" not in properties


def test_zookeeper_on_the_loopback_interface_is_used_if_it_answers() -> None:
    environment = {"KAFKA_ZOOKEEPER_CONNECT": "localhost:2181/kafka"}
    found = in_container(environment, answering=(("localhost", 2181),))
    assert found.properties["zookeeper.connect"] == "localhost:2181/kafka"
    assert in_container(environment).properties.get("zookeeper.connect") is None
    assert in_container({"KAFKA_ZOOKEEPER_CONNECT": "localhost:1,zk:2181"}).properties["zookeeper.connect"]


def test_key_stores_and_their_passwords_come_from_the_folder_of_secrets() -> None:
    environment = {
        "KAFKA_ADVERTISED_LISTENERS": "SSL://localhost:9093",
        "KAFKA_SSL_KEYSTORE_FILENAME": "broker.p12",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "store-password",
        "KAFKA_SSL_KEY_CREDENTIALS": "key-password",
    }
    files = {"/etc/kafka/secrets/store-password": "one\n", "/etc/kafka/secrets/key-password": "two\n"}
    properties = in_container(environment, files=files).properties
    assert properties["ssl.keystore.location"] == "/etc/kafka/secrets/broker.p12"
    assert properties["ssl.keystore.type"] == "PKCS12"
    assert (properties["ssl.keystore.password"], properties["ssl.key.password"]) == ("one", "two")
    assert not [name for name in properties if "filename" in name or "credentials" in name]
    with pytest.raises(ValueError, match="KAFKA_SSL_KEY_CREDENTIALS=key-password: no file"):
        in_container(environment, files={"/etc/kafka/secrets/store-password": "one"})


JAAS = """
// users
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="a;b}" /* of the broker */
    user_admin="a;b}";
  org.apache.kafka.common.security.scram.ScramLoginModule required username="s" password="t";
};
KafkaClient { org.apache.kafka.common.security.plain.PlainLoginModule required username="c" password="d"; };
"""


def test_users_of_a_jaas_file_belong_to_the_sasl_listeners() -> None:
    entries = read_jaas_section(JAAS, "KafkaServer")
    assert sorted(entries) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    environment = {
        "KAFKA_OPTS": "-Xmx1g -Djava.security.auth.login.config=/etc/kafka/jaas.conf",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:29092,OUT://localhost:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,OUT:SASL_PLAINTEXT",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
    }
    found = in_container(environment, files={"/etc/kafka/jaas.conf": JAAS})
    assert 'user_admin="a;b}";' in found.properties["listener.name.out.plain.sasl.jaas.config"]
    assert not [name for name in found.properties if name.startswith("listener.name.plaintext")]
    with pytest.raises(ValueError, match=r"no file /etc/kafka/jaas\.conf"):
        in_container(environment)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"KAFKA_ADVERTISED_LISTENERS": "localhost:9092"}, "KAFKA_ADVERTISED_LISTENERS=localhost:9092: expected"),
        ({"CLUSTER_ID": "two words"}, "CLUSTER_ID='two words': expected"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        in_container(environment)


def test_console_and_registry_are_off_by_default() -> None:
    off = in_container({"BARNABAS_CONSOLE": "0"})
    assert (off.console, off.schema_registry) == (None, None)
    on = in_container({"BARNABAS_CONSOLE": "1", "BARNABAS_SCHEMA_REGISTRY_LISTEN": "127.0.0.1:8085"})
    assert (on.console, on.schema_registry) == ("0.0.0.0:8080", "127.0.0.1:8085")
