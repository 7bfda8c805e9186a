"""Clients of every make that show certificates: who has one of the authority's writes under its name."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compat import one_record
from tests.compat.one_record import PATIENCE, WRITTEN
from tests.kafka import KafkaTools

from barnabas.clients import security_of
from barnabas.clients.certificates import Authority
from barnabas.testing import Broker


class Shown:
    """What a client shows and trusts."""

    def __init__(self, ca: Path, own: Path, patience_ms: int) -> None:
        """`patience_ms` is how long it tries."""
        self.ca, self.own = str(ca), str(own)
        self.patience_ms = patience_ms

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.own)
        return context

    @property
    def settings(self) -> dict[str, str]:
        """By the names of Java's clients."""
        stores = {"ssl.truststore.location": self.ca, "ssl.keystore.location": self.own}
        kinds = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
        return {"security.protocol": "SSL", **stores, **kinds}


class World:
    """A broker that lets CN=anna do everything, and whom clients may claim to be."""

    def __init__(self, folder: Path) -> None:
        authority, other = Authority.new("test CA"), Authority.new("another CA")
        self.folder, ca = folder, folder / "ca.pem"
        authority.write(ca)
        for name, by, hosts in (
            ("broker", authority, ["127.0.0.1"]),
            ("anna", authority, []),
            ("eve", authority, []),
            ("forged", other, []),
        ):
            by.issue("anna" if name == "forged" else name, hosts).write(folder / f"{name}.pem")
        self.expired = folder / "expired.pem"
        authority.issue("anna", days=0).write(self.expired)
        self.config = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
            "ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:CN=anna",
        }

    def shown(self, name: str) -> Shown:
        # Who is refused may go on trying, and who is not has time.
        return Shown(self.folder / "ca.pem", self.folder / f"{name}.pem", PATIENCE * 1000 if name == "anna" else 4000)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(world: World) -> Iterator[Broker]:
    with Broker({"t": 1}, config=world.config) as broker:
        yield broker


def by_confluent(broker: Broker, shown: Shown) -> str:
    return one_record.by_confluent(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": shown.ca,
            "ssl.certificate.location": shown.own,
            "ssl.key.location": shown.own,
            "message.timeout.ms": shown.patience_ms,
        }
    )


def of_python(broker: Broker, shown: Shown) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap, "security_protocol": "SSL", "ssl_context": shown.context}


def by_kafka_python(broker: Broker, shown: Shown) -> str:
    limits = dict.fromkeys(("max_block_ms", "bootstrap_timeout_ms"), shown.patience_ms)
    return one_record.by_kafka_python(of_python(broker, shown) | limits)


def by_aiokafka(broker: Broker, shown: Shown) -> str:
    return one_record.by_aiokafka(of_python(broker, shown))


def by_ours(broker: Broker, shown: Shown) -> str:
    return one_record.by_ours(broker.bootstrap, security_of(shown.settings), delivery_timeout_ms=shown.patience_ms)


CLIENTS: dict[str, Callable[[Broker, Shown], str]] = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "ours": by_ours,
}


@pytest.mark.verify
@pytest.mark.parametrize("client", CLIENTS)
def test_who_shows_the_right_certificate_writes_and_nobody_else(secured: Broker, world: World, client: str) -> None:
    write = CLIENTS[client]
    before = len(secured.records("t"))
    assert write(secured, world.shown("anna")) == WRITTEN
    for name in ("forged", "expired", "eve"):
        assert write(secured, world.shown(name)) != WRITTEN, name
    assert len(secured.records("t")) == before + 1


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", ["4.4.0", "3.9.1"])
def test_java_shows_one_too(secured: Broker, world: World, tmp_path: Path, version: str) -> None:
    tools = KafkaTools(version)
    for name, is_right in (("anna", True), ("forged", False), ("expired", False)):
        file = tmp_path / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in world.shown(name).settings.items()))
        where = ("--bootstrap-server", secured.bootstrap, "--command-config", str(file))
        result = tools.run("kafka-topics", *where, "--list")
        assert (result.returncode == 0) == is_right
        assert ("t\n" in result.stdout) == is_right
        # It hears that it is refused, and does not ask again until its time is over.
        assert ("SslAuthenticationException" in result.stdout + result.stderr) != is_right, (
            result.stdout + result.stderr
        )
