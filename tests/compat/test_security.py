"""Clients of every make against listeners with passwords: who is right is let in, who is wrong is not."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.compat import one_record
from tests.compat.one_record import PATIENCE, WRITTEN

from barnabas.clients import security_of
from barnabas.testing import Broker

PASSWORDS = {"admin": "adm1n", "anna": "s3cret"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": "0",
}
QUICK = {("confluent-kafka", "SCRAM-SHA-512"), ("ours", "PLAIN")}


@pytest.fixture(scope="module", params=[pytest.param("SASL_PLAINTEXT", marks=pytest.mark.verify), "SASL_SSL"])
def secured(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One that lets anna write to `open` and nobody else do anything."""
    tls = request.param == "SASL_SSL"
    with Broker({"open": 1, "shut": 1}, sasl=PASSWORDS, tls=tls, config=AUTHORIZED) as broker:
        admin = AdminClient(of_librdkafka(broker, "PLAIN", "admin", PASSWORDS["admin"]))
        rule = AclBinding(
            ResourceType.TOPIC,
            "open",
            ResourcePatternType.LITERAL,
            "User:anna",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for future in admin.create_acls([rule]).values():
            future.result(PATIENCE)
        yield broker


def of_librdkafka(broker: Broker, mechanism: str, user: str, password: str) -> dict[str, Any]:
    settings = broker.client_settings()
    found: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": settings["security.protocol"],
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    return found | ({"ssl.ca.location": broker.ca_file} if "ssl.truststore.type" in settings else {})


def of_python(broker: Broker, mechanism: str, user: str, password: str) -> dict[str, Any]:
    settings = broker.client_settings()
    found: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": settings["security.protocol"],
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    if "ssl.truststore.type" in settings:
        found["ssl_context"] = ssl.create_default_context(cafile=broker.ca_file)
    return found


def by_confluent(broker: Broker, mechanism: str, password: str, topic: str) -> str:
    return one_record.by_confluent(of_librdkafka(broker, mechanism, "anna", password), topic)


def by_kafka_python(broker: Broker, mechanism: str, password: str, topic: str) -> str:
    # Who is refused goes on trying, and who is not has time.
    limit_ms = PATIENCE * 1000 if password == PASSWORDS["anna"] else 5000
    limits = dict.fromkeys(("max_block_ms", "bootstrap_timeout_ms"), limit_ms)
    return one_record.by_kafka_python(of_python(broker, mechanism, "anna", password) | limits, topic)


def by_aiokafka(broker: Broker, mechanism: str, password: str, topic: str) -> str:
    return one_record.by_aiokafka(of_python(broker, mechanism, "anna", password), topic)


def by_ours(broker: Broker, mechanism: str, password: str, topic: str) -> str:
    settings = broker.client_settings("anna", mechanism)
    settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace(PASSWORDS["anna"], password)
    return one_record.by_ours(broker.bootstrap, security_of(settings), topic)


CLIENTS: dict[str, tuple[Callable[[Broker, str, str, str], str], set[str], set[str]]] = {
    "confluent-kafka": (by_confluent, {"_AUTHENTICATION"}, {"TOPIC_AUTHORIZATION_FAILED"}),
    "kafka-python": (
        by_kafka_python,
        {"SaslAuthenticationFailedError", "NoBrokersAvailable", "KafkaTimeoutError"},
        {"TopicAuthorizationFailedError"},
    ),
    "aiokafka": (
        by_aiokafka,
        {"AuthenticationFailedError", "KafkaConnectionError", "SaslAuthenticationFailed"},
        {"TopicAuthorizationFailedError"},
    ),
    "ours": (by_ours, {"SASL_AUTHENTICATION_FAILED", "NETWORK_EXCEPTION"}, {"TOPIC_AUTHORIZATION_FAILED"}),
}
"""How each writes, and what it says when the password is wrong, and when the topic is not its to write to."""


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [
        pytest.param(client, mechanism, marks=[] if (client, mechanism) in QUICK else pytest.mark.verify)
        for client in CLIENTS
        for mechanism in MECHANISMS
    ],
)
def test_who_is_right_writes_where_they_may_and_who_is_wrong_nowhere(
    secured: Broker, client: str, mechanism: str
) -> None:
    write, unknown, refused = CLIENTS[client]
    before = secured.records("open")
    assert write(secured, mechanism, PASSWORDS["anna"], "open") == WRITTEN
    assert write(secured, mechanism, PASSWORDS["anna"], "shut") in refused
    assert write(secured, mechanism, "wrong", "open") in unknown
    assert len(secured.records("open")) == len(before) + 1
    assert not secured.records("shut")


def test_confluent_kafka_administers_rules_and_passwords(secured: Broker) -> None:
    admin = AdminClient(of_librdkafka(secured, "SCRAM-SHA-512", "admin", PASSWORDS["admin"]))
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    (rule,) = admin.describe_acls(everything).result(PATIENCE)
    assert (rule.name, rule.principal, rule.operation) == ("open", "User:anna", AclOperation.WRITE)
    more = AclBinding(
        ResourceType.TOPIC,
        "new",
        ResourcePatternType.PREFIXED,
        "User:carl",
        "*",
        AclOperation.CREATE,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([more]).values():
        future.result(PATIENCE)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for future in admin.alter_user_scram_credentials([UserScramCredentialUpsertion("carl", info, b"pw")]).values():
        future.result(PATIENCE)
    carl = AdminClient(of_librdkafka(secured, "SCRAM-SHA-256", "carl", "pw"))
    topics = carl.create_topics([NewTopic("new-1", 1, 1), NewTopic("old-1", 1, 1)])
    topics["new-1"].result(PATIENCE)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        topics["old-1"].result(PATIENCE)
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        for future in carl.create_acls([more]).values():
            future.result(PATIENCE)
    described = admin.describe_user_scram_credentials(["carl"])["carl"].result(PATIENCE)  # type: ignore[index]
    assert [one.iterations for one in described.scram_credential_infos] == [4096]
    gone = UserScramCredentialDeletion("carl", ScramMechanism.SCRAM_SHA_256)
    for future in admin.alter_user_scram_credentials([gone]).values():
        future.result(PATIENCE)
    of_carl = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:carl", None, AclOperation.ANY, AclPermissionType.ANY
    )
    (deleted,) = admin.delete_acls([of_carl]).values()
    assert [one.name for one in deleted.result(PATIENCE)] == ["new"]
    secured.delete_topic("new-1")
