"""A Barnabas broker whose controllers, Apache Kafka's, require TLS and an authentication."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaControllers
from tests.server_process import wait_until

from barnabas.clients.admin import Admin
from barnabas.clients.admin.topics import NewTopic
from barnabas.clients.certificates import Authority
from barnabas.clients.producer import Producer

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
REASON = "certificate verify failed"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Certificates:
    """An authority, a certificate of the controllers and one of the broker."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.ca = folder / "ca.pem"
        authority = Authority.new("test CA")
        authority.write(self.ca)
        self.files = {name: folder / f"{name}.pem" for name in ("controller", "broker")}
        for name, path in self.files.items():
            authority.issue(name, ["127.0.0.1"]).write(path)

    def settings(self, name: str, prefix: str = "") -> dict[str, str]:
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(self.files[name]),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(self.ca),
        }

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.files["broker"])
        return context


class SecuredControllers(KafkaControllers):
    """Controllers that require a client certificate, and a SASL login in addition if `mechanism` is set."""

    def __init__(self, folder: Path, certificates: Certificates, mechanism: str | None) -> None:
        self.protocol = "SSL" if mechanism is None else "SASL_SSL"
        # Only the broker's principal may send the requests of brokers (CLUSTER_ACTION).
        names = "User:CN=broker;User:CN=controller" if mechanism is None else "User:node"
        properties = {
            "listener.security.protocol.map": f"CONTROLLER:{self.protocol}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": names,
            **certificates.settings("controller"),
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.client.auth": "required",
        }
        self.login: dict[str, str] = {}
        if mechanism is not None:
            module = PLAIN if mechanism == "PLAIN" else SCRAM
            login = f'{module} required username="node" password="secret"'
            key = f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config"
            self.login = {"sasl.mechanism.controller.protocol": mechanism, key: f"{login};"}
            users = ' user_node="secret"' if mechanism == "PLAIN" else ""
            properties |= {**self.login, "sasl.enabled.mechanisms": mechanism, key: f"{login}{users};"}
        super().__init__(folder, properties=properties)
        for server in self.servers:
            server.client_tls = certificates.context()
            if module_needs_credentials(mechanism):
                server.format_arguments = ["--add-scram", f"{mechanism}=[name=node,password=secret]"]


def module_needs_credentials(mechanism: str | None) -> bool:
    """Return whether the users must be in the metadata before the controllers connect to each other."""
    return mechanism is not None and mechanism.startswith("SCRAM")


@pytest.mark.parametrize(
    "mechanism", [*(pytest.param(one, marks=pytest.mark.nightly) for one in (None, "PLAIN")), "SCRAM-SHA-512"]
)
async def test_a_broker_joins_controllers_with_tls(tmp_path: Path, mechanism: str | None) -> None:
    certificates = Certificates(tmp_path / "certificates")
    with SecuredControllers(tmp_path / "controllers", certificates, mechanism) as controllers:
        properties = {
            "broker.id": "2",
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controllers.bootstrap,
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:{controllers.protocol}",
            "default.replication.factor": "1",
            **certificates.settings("broker", "listener.name.controller."),
            **controllers.login,
        }
        with BarnabasServer(tmp_path / "barnabas", properties=properties) as broker:
            async with Admin(broker.bootstrap) as admin:
                await admin.create_topics([NewTopic("t", 1, 1)])
            async with Producer(broker.bootstrap) as producer:  # idempotent: its id is of the controller
                assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 0


async def test_a_broker_without_the_controllers_authority_reports_the_reason(tmp_path: Path) -> None:
    certificates, other = Certificates(tmp_path / "certificates"), Certificates(tmp_path / "other")
    with SecuredControllers(tmp_path / "controllers", certificates, None) as controllers:
        properties = {
            "broker.id": "2",
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controllers.bootstrap,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
            **other.settings("broker", "listener.name.controller."),
        }
        broker = BarnabasServer(tmp_path / "barnabas", properties=properties)
        broker.launch()
        try:
            wait_until(lambda: REASON in broker.log_tail(), timeout_s=60, what=REASON)
            assert "cannot connect to the controller at" in broker.log_tail()
        finally:
            broker.stop()  # a start that waits for the controllers ends at SIGTERM
