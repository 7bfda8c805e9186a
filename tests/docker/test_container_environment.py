"""Settings from the variables of containers, as test libraries and compose files set them."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from barnabas.server.config.broker_config import BrokerConfig
from barnabas.tools.cli.container.environment import ContainerHost, ContainerSettings, container_settings
from barnabas.tools.cli.container.jaas import read_jaas_section

COMBINED = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}
ONE_REPLICA = {
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
}
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
    """A service of a compose file, and what a broker with its variables has to have."""

    name: str
    environment: dict[str, str]
    listening: dict[str, int]
    advertised: dict[str, str]
    settings: dict[str, object] = {}  # noqa: RUF012 - of a tuple, never changed
    mounts: tuple[str, ...] = ()
    log_dir: str = "/var/lib/barnabas"
    cluster_id: str | None = None
    warned: str = ""


SERVICES = [
    Service(
        "apache: host and containers",
        {
            **COMBINED,
            **ONE_REPLICA,
            "KAFKA_LISTENERS": "INTERNAL://:29092,EXTERNAL://:9092,CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": "INTERNAL://kafka:29092,EXTERNAL://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_NUM_PARTITIONS": "3",
        },
        {"INTERNAL": 29092, "EXTERNAL": 9092},
        {"INTERNAL": "kafka:29092", "EXTERNAL": "localhost:9092"},
        {"num.partitions": 3, "group.initial.rebalance.delay.ms": 0},
    ),
    Service(
        "apache: listeners derived from the advertised ones",
        {"KAFKA_NODE_ID": "7", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:9092"},
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "broker:9092"},
        {"node.id": 7, "broker.id": 7},
    ),
    Service(
        "apache: some settings and no listeners",
        {"KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false", "KAFKA_LOG_RETENTION_HOURS": "24"},
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "localhost:9092"},
        {"auto.create.topics.enable": False, "log.retention.hours": 24},
    ),
    Service(
        "confluent: KRaft with an id, a volume and options of the Java process",
        {
            **COMBINED,
            **ONE_REPLICA,
            "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
            "KAFKA_LISTENERS": "PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:9092",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT"
            ),
            "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
            "KAFKA_JMX_PORT": "9101",
            "KAFKA_JMX_HOSTNAME": "localhost",
            "KAFKA_HEAP_OPTS": "-Xmx512m",
            "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
        },
        {"PLAINTEXT": 29092, "PLAINTEXT_HOST": 9092},
        {"PLAINTEXT": "broker:29092", "PLAINTEXT_HOST": "localhost:9092"},
        mounts=("/var/lib/kafka/data",),
        log_dir="/var/lib/kafka/data",
        cluster_id="MkU3OEVBNTcwNTJENDM2Qk",
    ),
    Service(
        "confluent: ZooKeeper next to it",
        {
            **ONE_REPLICA,
            "KAFKA_BROKER_ID": "1",
            "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:29092,PLAINTEXT_HOST://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        },
        {"PLAINTEXT": 29092, "PLAINTEXT_HOST": 9092},
        {"PLAINTEXT": "kafka:29092", "PLAINTEXT_HOST": "localhost:9092"},
        {"zookeeper.connect": "zookeeper:2181", "broker.id": 1},
    ),
    Service(
        "confluent: ZooKeeper on the loopback interface, which does not answer",
        {
            "KAFKA_BROKER_ID": "1",
            "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
            "KAFKA_DELETE_TOPIC_ENABLE": "true",
        },
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "localhost:9092"},
        {"zookeeper.connect": None, "delete.topic.enable": True},
        warned="KAFKA_ZOOKEEPER_CONNECT=localhost:2181",
    ),
    Service(
        "confluent: one listener, settings with typing errors",
        {
            **COMBINED,
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
            "KAFKA_AUTO_CREATE_TOPIC_ENABLE": "true",
        },
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "kafka:9092"},
        warned="KAFKA_AUTO_CREATE_TOPIC_ENABLE (auto.create.topic.enable)",
    ),
    Service(
        "bitnami: KRaft",
        {
            **{name.replace("KAFKA_", "KAFKA_CFG_", 1): value for name, value in COMBINED.items()},
            "ALLOW_PLAINTEXT_LISTENER": "yes",
            "KAFKA_ENABLE_KRAFT": "yes",
            "KAFKA_KRAFT_CLUSTER_ID": "abcdefghijklmnopqrstuv",
            "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094",
            "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094",
            "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": ("CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
        },
        {"PLAINTEXT": 9092, "EXTERNAL": 9094},
        {"PLAINTEXT": "kafka:9092", "EXTERNAL": "localhost:9094"},
        {"node.id": 1},
        mounts=("/bitnami/kafka",),
        log_dir="/bitnami/kafka/data",
        cluster_id="abcdefghijklmnopqrstuv",
    ),
    Service(
        "bitnami: keys with and without CFG, of which CFG wins",
        {
            "KAFKA_BROKER_ID": "2",
            "KAFKA_CFG_BROKER_ID": "3",
            "KAFKA_CFG_AUTO_CREATE_TOPICS_ENABLE": "true",
            "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://127.0.0.1:9092",
            "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092",
        },
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "127.0.0.1:9092"},
        {"broker.id": 3},
        mounts=("/bitnami",),
        log_dir="/bitnami/kafka/data",
    ),
    Service(
        "apache: log directories, rack, segments and no data volume of their own",
        {
            **COMBINED,
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://192.168.1.5:9092",
            "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
            "KAFKA_LOG_SEGMENT_BYTES": "1073741824",
            "KAFKA_BROKER_RACK": "a",
            "KAFKA_LOG_RETENTION_MINUTES": "10",
            "KAFKA_DEFAULT_REPLICATION_FACTOR": "1",
        },
        {"PLAINTEXT": 9092},
        {"PLAINTEXT": "192.168.1.5:9092"},
        {"log.segment.bytes": 1 << 30, "broker.rack": "a", "log.retention.minutes": 10},
        log_dir="/tmp/kraft-combined-logs",
    ),
]


@pytest.mark.parametrize("service", SERVICES, ids=[service.name for service in SERVICES])
def test_a_compose_service_starts_with_another_image_only(service: Service) -> None:
    found = in_container(service.environment, mounts=service.mounts)
    config = BrokerConfig.from_properties(found.properties)
    assert {one.name: one.port for one in config.listeners} == service.listening
    assert {one.name: f"{one.advertised_host}:{one.advertised_port}" for one in config.listeners} == service.advertised
    assert {name: config.get(name) for name in service.settings} == service.settings
    assert config.log_dirs == [service.log_dir]
    assert found.cluster_id == service.cluster_id
    assert [warning for warning in found.warnings if not service.warned or service.warned not in warning] == []
    assert bool(found.warnings) is bool(service.warned)
    assert not [line for line in config.startup_warnings if "Unknown configuration keys" in line]


def test_without_variables_the_file_is_the_base_and_own_variables_win() -> None:
    base = "listeners=A://0.0.0.0:1\nlistener.security.protocol.map=A:PLAINTEXT\nnum.partitions=2\n"
    found = in_container({"KAFKA_NUM_PARTITIONS": "3", "BARNABAS_CONFIG_NUM_PARTITIONS": "4", "HOME": "/"}, base)
    assert found.properties["listeners"] == "A://0.0.0.0:1"
    assert found.properties["num.partitions"] == "4"


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
