"""Errors that a client reports: mechanisms, PEM files, missing ACLs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from barnabas.clients import Admin, Consumer, Producer
from barnabas.clients.certificates import Authority
from barnabas.clients.security import security_of
from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas.protocol.errors import KafkaError
from barnabas.testing import Broker

USER = {
    "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="ann" password="secret";'
}


async def test_a_forgotten_mechanism_is_reported_with_the_mechanisms_of_the_broker() -> None:
    with Broker(sasl={"ann": "secret"}) as broker:
        settings = {key: value for key, value in broker.client_settings("ann").items() if key != "bootstrap.servers"}
        offered = settings.pop("sasl.mechanism")
        with pytest.raises(KafkaError) as failed:
            async with Admin(broker.bootstrap, security=security_of(settings | USER)):
                pass
    text = str(failed.value)
    assert text.startswith("UNSUPPORTED_SASL_MECHANISM: broker 127.0.0.1:")
    assert "does not offer GSSAPI. Set sasl.mechanism to one of" in text
    assert offered in text
    assert "pip install" not in text


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("certificate", "the private key (BEGIN PRIVATE KEY) is missing"),
        ("key", "the certificate (BEGIN CERTIFICATE) is missing"),
        ("cut", "the block BEGIN CERTIFICATE has no line END CERTIFICATE"),
        ("text", "there is no PEM block in it; expected BEGIN PRIVATE KEY and BEGIN CERTIFICATE"),
        ("damaged", "a PEM block in it is damaged"),
        ("mismatch", "the private key does not belong to the first certificate"),
    ],
)
def test_a_broken_pem_file_is_named_with_its_fault(tmp_path: Path, content: str, fault: str) -> None:
    pem, other = (Authority.new("CA").issue(name, ["localhost"]).pem() for name in ("a", "b"))
    begin = "-----BEGIN CERTIFICATE-----"
    key, certificates = pem[: pem.index(begin)], pem[pem.index(begin) :]
    contents = {
        "certificate": certificates,
        "key": key,
        "cut": pem[: pem.index(begin) + 200],
        "text": "hello\n",
        "damaged": f"{key}{begin}\nAAAA\n-----END CERTIFICATE-----\n",
        "mismatch": key + other[other.index(begin) :],
    }
    file = tmp_path / "client.pem"
    file.write_text(contents[content])
    with pytest.raises(ValueError, match=r"^ssl\.keystore\.location: ") as failed:
        security_of({"security.protocol": "SSL", "ssl.keystore.location": str(file)})
    assert str(failed.value) == f"ssl.keystore.location: {file}: {fault}"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "there is no certificate (BEGIN CERTIFICATE) in it"),
        # Megabytes whose blocks do not end are searched once, not once per block.
        ("-----BEGIN CERTIFICATE-----\n" * 100_000, "the block BEGIN CERTIFICATE has no line END CERTIFICATE"),
    ],
    ids=["empty", "many blocks"],
)
def test_a_trust_store_without_a_certificate(tmp_path: Path, content: str, fault: str) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(content)
    with pytest.raises(ValueError, match="ssl") as failed:
        security_of({"security.protocol": "SSL", "ssl.truststore.location": str(file)})
    assert str(failed.value) == f"ssl.truststore.location: {file}: {fault}"


async def test_a_missing_acl_is_named_with_principal_operation_and_topic(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "barnabas")
    acl = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with Broker(["orders"], sasl={"admin": "s", "ann": "secret"}, config=acl | {"super.users": "User:admin"}) as broker:
        settings = {key: value for key, value in broker.client_settings("ann").items() if key != "bootstrap.servers"}
        ann = security_of(settings)
        options: dict[str, Any] = {"security": ann, "enable_idempotence": False}
        with pytest.raises(
            KafkaError, match="TOPIC_AUTHORIZATION_FAILED: User:ann has no ACL for Describe on topic orders"
        ):
            async with Producer(broker.bootstrap, **options) as producer:
                await producer.send_and_wait("orders", b"v")
        admin = security_of({k: v for k, v in broker.client_settings("admin").items() if k != "bootstrap.servers"})
        async with Admin(broker.bootstrap, security=admin) as operator:
            pattern = ResourcePattern(AclResourceType.TOPIC, "orders", AclPatternType.LITERAL)
            entry = AccessControlEntry("User:ann", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW)
            await operator.create_acls([AclBinding(pattern, entry)])
        with pytest.raises(
            KafkaError, match="TOPIC_AUTHORIZATION_FAILED: User:ann has no ACL for Write on topic orders"
        ):
            async with Producer(broker.bootstrap, **options) as producer:
                await producer.send_and_wait("orders", b"v")
        with pytest.raises(KafkaError, match="User:ann has no ACL for Write on any topic"):
            async with Producer(broker.bootstrap, security=ann) as producer:
                await producer.send_and_wait("orders", b"v")
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            async with Consumer(broker.bootstrap, group_id="g", security=ann) as consumer:
                consumer.subscribe(["orders"])
                await consumer.getone()
