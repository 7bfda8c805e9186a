"""A folder of a combined Apache Kafka node: its metadata as images, and Barnabas as the broker that opens it."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaServer, KafkaTools
from tests.server.image.metadata_history import image_after
from tests.server_process import free_port

from barnabas.clients.admin import Admin, ConfigChange, NewTopic
from barnabas.clients.security import Security
from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas.protocol.config_resources import ConfigResource, ConfigResourceType, ConfigSource
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.metadata_records import decode_metadata_record, encode_metadata_record
from barnabas.server.controller.kraft_adoption import METADATA_FOLDER
from barnabas.server.controller.kraft_metadata_log import KraftMetadataLog
from barnabas.server.image.metadata_image import MetadataImage
from barnabas.server.runtime.host import ThreadWork
from barnabas.storage.filesystem import OsFileSystem

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(300)]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SECURITY = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "the-secret-of-tokens",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
}
ORDERS = ConfigResource(ConfigResourceType.TOPIC, "orders")
PLAIN = ConfigResource(ConfigResourceType.TOPIC, "plain")
GROUP = ConfigResource(ConfigResourceType.GROUP, "a/group")
METRICS = ConfigResource(ConfigResourceType.CLIENT_METRICS, "subscription")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
CHANGES = {
    ORDERS: {"retention.ms": "7654321", "cleanup.policy": "compact,delete", "max.message.bytes": "100000"},
    GROUP: {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"},
    METRICS: {"interval.ms": "7000", "metrics": "org.apache.kafka.producer.", "match": "client_id=a.*"},
    BROKER: {"message.max.bytes": "900000"},
    ALL_BROKERS: {"log.cleaner.backoff.ms": "12345"},
}
DYNAMIC = {
    ConfigSource.TOPIC,
    ConfigSource.GROUP,
    ConfigSource.CLIENT_METRICS,
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
}
TOPIC, ANNA = AclResourceType.TOPIC, "User:anna"
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
ACLS = [
    AclBinding(ResourcePattern(TOPIC, "orders"), AccessControlEntry(ANNA, "*", AclOperation.READ, ALLOW)),
    AclBinding(ResourcePattern(TOPIC, "orders"), AccessControlEntry("User:eve", "10.0.0.1", AclOperation.ALL, DENY)),
    AclBinding(
        ResourcePattern(TOPIC, "pre", AclPatternType.PREFIXED), AccessControlEntry(ANNA, "*", AclOperation.WRITE, ALLOW)
    ),
    AclBinding(
        ResourcePattern(AclResourceType.GROUP, "a/group"), AccessControlEntry(ANNA, "*", AclOperation.READ, ALLOW)
    ),
    AclBinding(
        ResourcePattern(AclResourceType.CLUSTER, "kafka-cluster"),
        AccessControlEntry(ANNA, "*", AclOperation.DESCRIBE, ALLOW),
    ),
]
QUOTAS: list[tuple[dict[str, str | None], dict[str, float]]] = [
    ({"user": "anna"}, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
    ({"user": "anna", "client-id": None}, {"consumer_byte_rate": 2000.0}),
    ({"user": None}, {"consumer_byte_rate": 3000.0}),
    ({"client-id": "c/1"}, {"producer_byte_rate": 4000.0}),
    ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
]


def listeners(plain: int, sasl: int) -> dict[str, str]:
    both = f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}"
    protocols = "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
    return {"listeners": both, "advertised.listeners": both, "listener.security.protocol.map": protocols}


class SecuredKafka(KafkaServer):
    """A combined node with a listener for SCRAM."""

    def __init__(self, folder: Path, version: str) -> None:
        super().__init__(folder, version=version, heap="512m", properties=SECURITY)
        self.sasl = free_port()

    def server_properties(self) -> dict[str, str]:
        given = super().server_properties()
        own = listeners(self.port, self.sasl)
        controller = given["listeners"].split(",")[1]
        protocols = f"{own['listener.security.protocol.map']},CONTROLLER:PLAINTEXT"
        own |= {"listeners": f"{own['listeners']},{controller}", "listener.security.protocol.map": protocols}
        # A snapshot after every few records.
        return given | own | {"metadata.log.max.record.bytes.between.snapshots": "2000"}


def scram(user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Security:
    return Security(mechanism=mechanism, username=user, password=password)


def tokens(version: str, folder: Path, port: int, *args: str) -> str:
    """The output of kafka-delegation-tokens for anna."""
    settings = folder / "anna.properties"
    jaas = f'sasl.jaas.config={SCRAM} username="anna" password="anna-password";\n'
    settings.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n{jaas}")
    bootstrap = ("--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(settings))
    return KafkaTools(version).output("kafka-delegation-tokens", *bootstrap, *args)


async def fill(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        topics = [NewTopic("orders", num_partitions=3), NewTopic("plain", num_partitions=1), NewTopic("deleted")]
        assert set((await admin.create_topics(topics)).values()) == {None}
        changes = {
            one: [ConfigChange(name, value) for name, value in config.items()] for one, config in CHANGES.items()
        }
        assert set((await admin.alter_configs(changes)).values()) == {None}
        assert set((await admin.delete_topics(["deleted"])).values()) == {None}
        await admin.create_acls(ACLS)
        removed = AclBinding(ResourcePattern(TOPIC, "removed"), ACLS[0].entry)
        await admin.create_acls([removed])
        await admin.delete_acls(AclBindingFilter(name="removed"))
        for entity, quotas in QUOTAS:
            await admin.alter_quotas(entity, quotas)
        await admin.alter_quotas({"user": "nobody"}, {"producer_byte_rate": 1.0})
        await admin.alter_quotas({"user": "nobody"}, {"producer_byte_rate": None})
    users = AdminClient({"bootstrap.servers": bootstrap})
    for user, mechanism in (("anna", 1), ("anna", 2), ("removed", 1)):
        info = ScramCredentialInfo(ScramMechanism(mechanism), 4096)
        wanted = UserScramCredentialUpsertion(user, info, f"{user}-password".encode())
        users.alter_user_scram_credentials([wanted])[user].result(30)
    gone = UserScramCredentialDeletion("removed", ScramMechanism.SCRAM_SHA_256)
    users.alter_user_scram_credentials([gone])["removed"].result(30)


@pytest.fixture(scope="module", params=["4.4.0", "4.1.1"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The folder of a Kafka that has stopped, and what its clients were told."""
    folder = tmp_path_factory.mktemp("kraft")
    with SecuredKafka(folder / "kafka", request.param) as server:
        asyncio.run(fill(server.bootstrap))
        tokens(request.param, folder, server.sasl, "--create", "--max-life-time-period", "-1")
        listed = tokens(request.param, folder, server.sasl, "--describe")
        # Kafka would leave these files if it were killed.
        shutil.copytree(server.log_dir / METADATA_FOLDER, folder / "of-a-running-kafka")
        facts = {"state": asyncio.run(state_of(server.bootstrap)), "tokens": listed, "version": request.param}
    yield {**facts, "folder": folder, "log_dir": server.log_dir}


async def state_of(bootstrap: str) -> dict[str, Any]:
    """What administrators read."""
    async with Admin(bootstrap) as admin:
        described = await admin.describe_configs([ORDERS, PLAIN, GROUP, METRICS, BROKER])
        configs = {
            (one, entry.name): (entry.value, entry.source)
            for one, entries in described.items()
            for entry in entries
            if entry.source in DYNAMIC
        }
        topics = await admin.describe_topics(["orders", "plain"])
        quotas = await admin.describe_quotas()
        return {
            "configs": configs,
            "topics": {topic.name: (topic.topic_id, len(topic.partitions)) for topic in topics},
            "acls": await admin.describe_acls(),
            "quotas": sorted(str((sorted(one.entity.items()), sorted(one.values.items()))) for one in quotas),
        }


async def read_image(folder: Path) -> MetadataImage:
    work = ThreadWork(asyncio.get_running_loop())
    try:
        return await KraftMetadataLog(OsFileSystem(), work, str(folder)).read_image()
    finally:
        work.close()


async def test_metadata_log_of_kafka_is_an_image(kafka: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    folder = kafka["log_dir"] / METADATA_FOLDER
    image = await read_image(folder)
    assert caplog.text == ""
    assert {"orders", "plain"} <= image.topics.ids.keys()
    assert "deleted" not in image.topics.ids
    for resource, config in CHANGES.items():
        assert image.configs.configs[resource].items() >= config.items()
    assert sorted(image.acls.acls.values()) == sorted(ACLS)
    assert {tuple(sorted(entity.items())): quotas for entity, quotas in QUOTAS} == image.client_quotas.entities
    assert set(image.scram.credentials) == {("anna", 1), ("anna", 2)}
    assert [token.owner for token in image.delegation_tokens.tokens.values()] == ["User:anna"]
    assert list(image.cluster.brokers) == [1]
    assert image.features.metadata_version == {"4.4.0": 33, "4.1.1": 27}[kafka["version"]]
    written = [encode_metadata_record(record, version) for record, version in image.write()]
    again = await image_after([decode_metadata_record(value) for value in written])
    assert replace(again, provenance=image.provenance) == image
    live = await read_image(kafka["folder"] / "of-a-running-kafka")
    for part in ("configs", "acls", "scram", "client_quotas", "delegation_tokens", "features", "producer_ids"):
        assert getattr(live, part) == getattr(image, part)
    # The log alone leads to the same image.
    snapshots = sorted(folder.glob("*.checkpoint"))
    assert len(snapshots) >= 2
    without = kafka["folder"] / "without-snapshots"
    shutil.copytree(folder, without, ignore=shutil.ignore_patterns("*[1-9]-*.checkpoint"))
    from_log = await read_image(without)
    assert replace(from_log, provenance=image.provenance) == image


def test_barnabas_opens_the_folder_with_its_metadata(kafka: dict[str, Any], tmp_path: Path) -> None:
    folder, plain, sasl = tmp_path / "barnabas", free_port(), free_port()
    folder.mkdir()
    server = BarnabasServer(folder, port=plain, properties={**SECURITY, **listeners(plain, sasl)})
    shutil.copytree(kafka["log_dir"], server.log_dir)
    for _ in range(2):
        with server:
            assert asyncio.run(state_of(server.bootstrap)) == kafka["state"]
            listed = tokens(kafka["version"], tmp_path, sasl, "--describe")
            # The HMAC follows from the id and the key, so that clients of Kafka can go on with it.
            assert listed.split() == kafka["tokens"].split()
            for user, password, mechanism, is_right in (
                ("anna", "anna-password", "SCRAM-SHA-512", True),
                ("anna", "another", "SCRAM-SHA-512", False),
                ("removed", "removed-password", "SCRAM-SHA-256", False),
            ):
                assert asyncio.run(logs_in(f"127.0.0.1:{sasl}", scram(user, password, mechanism))) is is_right
    log = (folder / "server.log").read_text()
    assert log.count("adopted the metadata") == 1
    assert "not adopted" not in log


async def logs_in(bootstrap: str, security: Security) -> bool:
    try:
        async with Admin(bootstrap, security=security) as admin:
            await admin.describe_cluster()
    except KafkaError as error:
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        return False
    return True
