"""An Apache Kafka that wants TLS, certificates or passwords, and what a client has to be given to get in."""

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
    """Kafka with a listener for passwords over TLS and one for certificates beside the plain one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.key, self.certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
        run_checked([*request, "-keyout", str(self.key), "-out", str(self.certificate)])
        both.write_text(self.key.read_text() + self.certificate.read_text())
        self.both = both
        self.by_password, self.by_certificate = (f"127.0.0.1:{free_port()}" for _ in range(2))
        super().__init__(folder / "server")

    def server_properties(self) -> dict[str, str]:
        plain = super().server_properties()
        more = f"PASSWORD://{self.by_password},CERTIFICATE://{self.by_certificate}"
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PASSWORD:SASL_SSL,CERTIFICATE:SSL"
        scram = MODULE.format("scram.Scram") + ";"
        return {
            **plain,
            "listeners": f"{plain['listeners']},{more}",
            "advertised.listeners": f"{plain['advertised.listeners']},{more}",
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.password.plain.sasl.jaas.config": f'{MODULE.format("plain.Plain")} user_ann="{PASSWORD}";',
            "listener.name.password.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.password.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.certificate.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }

    def settings(self, mode: str, password: str = PASSWORD) -> dict[str, str]:
        """What a client is given to get in, by the names of Java's."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.certificate)}
        if mode == "certificate files":
            own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.both)}
            settings = {"security.protocol": "SSL", **trust, **own}
        elif mode == "certificates as text":
            text = self.certificate.read_text()
            own = {"ssl.keystore.certificate.chain": text, "ssl.keystore.key": self.key.read_text()}
            settings = {"security.protocol": "SSL", "ssl.truststore.certificates": text, **own}
        else:
            jaas = f'{MODULE.format("x.X")} username="ann" password="{password}";'
            settings = {"security.protocol": "SASL_SSL", **trust, "sasl.mechanism": mode, "sasl.jaas.config": jaas}
        where = self.by_certificate if settings["security.protocol"] == "SSL" else self.by_password
        return {"bootstrap.servers": where, **settings}


def topic_of(mode: str) -> str:
    return mode.replace(" ", "-")


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """One with the user `ann` and a topic for each way in."""
    require_tool("openssl", "it makes the certificates")
    with SecuredKafka(folder) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            password = UserScramCredentialUpsertion("ann", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([password])["ann"].result(30)
        for created in admin.create_topics([NewTopic(topic_of(mode), 1, 1) for mode in SECURE_MODES]).values():
            created.result(30)
        yield server
