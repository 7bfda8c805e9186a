"""An Apache Kafka broker with SASL and TLS listeners, and the settings of clients that connect to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.foreign_tools import require_tool, run_checked
from tests.kafka import KafkaServer
from tests.server_process import free_port

MODULE = "org.apache.kafka.common.security.{}LoginModule required"
PASSWORD = "s3cret"
SECURE_MODES = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "certificate files", "certificates as text"]


class SecuredKafka(KafkaServer):
    """A broker with a SASL_SSL listener, an SSL listener that requires client certificates, and a plain listener."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.key, self.certificate, keystore = folder / "key.pem", folder / "certificate.pem", folder / "keystore.pem"
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
        run_checked([*request, "-keyout", str(self.key), "-out", str(self.certificate)])
        keystore.write_text(self.key.read_text() + self.certificate.read_text())
        self.keystore = keystore
        self.sasl_address, self.tls_address = (f"127.0.0.1:{free_port()}" for _ in range(2))
        super().__init__(folder / "server")

    def server_properties(self) -> dict[str, str]:
        plain = super().server_properties()
        secured = f"PASSWORD://{self.sasl_address},CERTIFICATE://{self.tls_address}"
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PASSWORD:SASL_SSL,CERTIFICATE:SSL"
        scram = MODULE.format("scram.Scram") + ";"
        return {
            **plain,
            "listeners": f"{plain['listeners']},{secured}",
            "advertised.listeners": f"{plain['advertised.listeners']},{secured}",
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.password.plain.sasl.jaas.config": f'{MODULE.format("plain.Plain")} user_ann="{PASSWORD}";',
            "listener.name.password.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.password.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.certificate.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }

    def settings(self, mode: str, password: str = PASSWORD) -> dict[str, str]:
        """Return the settings of a client for one of `SECURE_MODES`, with the names of the Java client's settings."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.certificate)}
        if mode == "certificate files":
            own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.keystore)}
            settings = {"security.protocol": "SSL", **trust, **own}
        elif mode == "certificates as text":
            text = self.certificate.read_text()
            own = {"ssl.keystore.certificate.chain": text, "ssl.keystore.key": self.key.read_text()}
            settings = {"security.protocol": "SSL", "ssl.truststore.certificates": text, **own}
        else:
            jaas = f'{MODULE.format("x.X")} username="ann" password="{password}";'
            settings = {"security.protocol": "SASL_SSL", **trust, "sasl.mechanism": mode, "sasl.jaas.config": jaas}
        address = self.tls_address if settings["security.protocol"] == "SSL" else self.sasl_address
        return {"bootstrap.servers": address, **settings}


def topic_of(mode: str) -> str:
    return mode.replace(" ", "-")


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """Run a broker with the user `ann` and a topic for each of `SECURE_MODES`."""
    require_tool("openssl", "it creates the certificates")
    with SecuredKafka(folder) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            password = UserScramCredentialUpsertion("ann", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([password])["ann"].result(30)
        for created in admin.create_topics([NewTopic(topic_of(mode), 1, 1) for mode in SECURE_MODES]).values():
            created.result(30)
        yield server
