"""The source and the sink against an Apache Kafka that wants TLS, certificates or passwords."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.kafka import KafkaServer
from tests.server_process import free_port
from tests.spark.conftest import read
from tests.tools import require_tool, run_checked

from barnabas.clients.spark.rows import arrow_schema
from barnabas.clients.spark.sink import TaskPlace, TaskSink, parse_sink_options
from barnabas.protocol.errors import ErrorCode, KafkaError

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(280)]
SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
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

    def options(self, mode: str, password: str = PASSWORD) -> dict[str, str]:
        """What a person gives a source to get in, as Spark's own connector wants it."""
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
        return {"kafka.bootstrap.servers": where, **{f"kafka.{name}": value for name, value in settings.items()}}


def topic_of(mode: str) -> str:
    return mode.replace(" ", "-")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    require_tool("openssl", "it makes the certificates")
    with SecuredKafka(tmp_path_factory.mktemp("secured") / "kafka") as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            password = UserScramCredentialUpsertion("ann", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([password])["ann"].result(30)
        for created in admin.create_topics([NewTopic(topic_of(mode), 1, 1) for mode in SECURE_MODES]).values():
            created.result(30)
        yield server


@pytest.mark.parametrize("mode", SECURE_MODES)
def test_rows_go_there_and_back(kafka: SecuredKafka, mode: str) -> None:
    topic = topic_of(mode)
    options = kafka.options(mode)
    wanted = [{"key": b"k%d" % i, "value": b"v%d" % i} for i in range(1000)]
    sink = TaskSink(parse_sink_options({**options, "topic": topic}, SCHEMA, streaming=False))
    batch = pa.RecordBatch.from_pylist(wanted, schema=arrow_schema(SCHEMA))
    assert sink.write(iter([batch]), TaskPlace("query", 0, 0)).rows == 1000
    assert read({**options, "subscribe": topic}, SCHEMA) == wanted


@pytest.mark.parametrize("mode", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_said(kafka: SecuredKafka, mode: str) -> None:
    with pytest.raises(KafkaError) as failed:
        read({**kafka.options(mode, "wrong"), "subscribe": "t"})
    assert failed.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_broker_that_nobody_vouches_for_gets_no_password(kafka: SecuredKafka) -> None:
    options = {name: value for name, value in kafka.options("PLAIN").items() if "truststore" not in name}
    with pytest.raises(KafkaError) as failed:
        read({**options, "subscribe": "t", "kafka.request.timeout.ms": "1000"})
    assert (
        isinstance(failed.value.__cause__, ssl.SSLCertVerificationError) or "CERTIFICATE" in str(failed.value).upper()
    )
