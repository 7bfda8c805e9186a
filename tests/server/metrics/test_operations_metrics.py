"""Metrics that alerts are about: errors, failed logins, certificates, transactions, throttling, room on the disks."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.server.metrics.test_metrics import one, read, values

from barnabas.clients import Admin
from barnabas.clients import Producer as OwnProducer
from barnabas.clients.certificates import Authority
from barnabas.clients.errors import BrokerUnreachableError
from barnabas.clients.key_stores import expiry_time, own_certificate
from barnabas.clients.security import security_of
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.server.apis.error_counts import ErrorCounts, error_paths
from barnabas.server.apis.table import SERVED
from barnabas.testing import Broker

ROOT = Path(__file__).parents[3]
MEASURED = {"metrics.listeners": "127.0.0.1:0"}
ERRORS = "kafka_network_requestmetrics_errors_total"
DAY = 86_400


def test_errors_are_counted_by_api_and_error() -> None:
    with Broker({"t": 1}, config=MEASURED | {"auto.create.topics.enable": "false"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        with pytest.raises(KafkaException):
            admin.create_topics([NewTopic("t", 1)])["t"].result(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 3_000_000})
        refused: list[Any] = []
        producer.produce("t", bytes(2_000_000), on_delivery=lambda error, _: refused.append(error))
        assert producer.flush(60) == 0
        assert refused[0] is not None
        found = values(read(broker))
        assert one(found, ERRORS, request="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1
        assert one(found, ERRORS, request="Produce", error="MESSAGE_TOO_LARGE") == 1
        assert {labels["error"] for name, labels in _labelled(found) if name == ERRORS} & {"NONE"} == set()


def _labelled(found: Any) -> list[tuple[str, dict[str, str]]]:
    return [(name, dict(labels)) for name, labels in found]


def test_every_place_of_an_error_code_in_a_response_is_found() -> None:
    commit = ErrorCounts.finder(ApiKey.OFFSET_COMMIT, 8)
    assert commit is not None
    codes = [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    partitions = [OffsetCommitResponsePartition(partition_index=n, error_code=code) for n, code in enumerate(codes)]
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])
    assert commit(response) == {ErrorCode.OFFSET_METADATA_TOO_LARGE: 2}
    assert commit(OffsetCommitResponse(topics=[])) is None
    heartbeat = ErrorCounts.finder(ApiKey.HEARTBEAT, 4)
    assert heartbeat is not None
    assert heartbeat(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)) == {ErrorCode.UNKNOWN_MEMBER_ID: 1}
    assert heartbeat(HeartbeatResponse()) is None
    metadata = ErrorCounts.finder(ApiKey.METADATA, 9)
    assert metadata is not None
    unknown = MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert metadata(MetadataResponse(topics=[unknown])) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1}
    without = {key for key, api in SERVED.items() if not error_paths(key, api.highest)}
    # Their responses have no error code in any version.
    assert without == set()


def test_failed_logins_are_counted_by_mechanism(tmp_path: Path) -> None:
    with Broker(["t"], sasl={"admin": "secret"}, config=MEASURED) as broker:
        right = broker.client_settings("admin")

        async def log_in(**changes: str) -> None:
            settings = {key: value for key, value in right.items() if key != "bootstrap.servers"} | changes
            settings = {key.replace("_", "."): value for key, value in settings.items()}
            async with Admin(broker.bootstrap, security=security_of(settings)):
                pass

        mechanism = right["sasl.mechanism"]
        broker._call(log_in())
        for _ in range(2):
            with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
                broker._call(log_in(sasl_username="admin", sasl_password="wrong", sasl_jaas_config=""))
        with pytest.raises(KafkaError, match=r"does not offer OAUTHBEARER\. Set sasl\.mechanism to one of"):
            broker._call(
                log_in(
                    sasl_mechanism="OAUTHBEARER",
                    sasl_jaas_config="org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                    'unsecuredLoginStringClaim_sub="x";',
                )
            )
        found = values(read(broker))
        (listener,) = {labels["listener"] for name, labels in _labelled(found) if "authentication" in name}
        count = "barnabas_failed_authentications_total"
        assert one(found, count, listener=listener, mechanism=mechanism) == 2
        assert one(found, count, listener=listener, mechanism="unsupported") == 1
        total = "kafka_server_socket_server_metrics_failed_authentication_total"
        assert one(found, total, listener=listener, networkProcessor="0") == 3


def test_certificates_and_failed_handshakes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority.new("test CA")
    authority.write(tmp_path / "ca.pem")
    authority.issue("broker", ["127.0.0.1"], days=12).write(tmp_path / "broker.pem")
    other = Authority.new("another CA")
    other.write(tmp_path / "other.pem")
    other.issue("client").write(tmp_path / "client.pem")
    settings = MEASURED | {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.client.auth": "required",
    }
    with Broker(config=settings) as broker:
        assert "the certificate of listener SSL expires in 11 days, at 20" in caplog.text
        client = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.keystore.location": str(tmp_path / "client.pem"),
        }

        async def connect() -> None:
            async with Admin(broker.bootstrap, security=security_of(client)):
                pass

        with pytest.raises((BrokerUnreachableError, KafkaError)):
            broker._call(connect())
        found = values(read(broker))
        seconds = one(found, "barnabas_certificate_expiry_seconds", listener="SSL")
        assert 11.9 * DAY < seconds < 12 * DAY
        assert one(found, "barnabas_failed_authentications_total", listener="SSL", mechanism="TLS") >= 1
        security = broker.server.state.security
        caplog.clear()
        tls = security.listener_security["SSL"].tls
        assert tls is not None
        for expires_in, expected in ((-1, "ERROR"), (29.9 * DAY, "WARNING"), (31 * DAY, None), (math.inf, None)):
            tls.expires_at = tls.expires_at - tls.seconds_until_expiry + expires_in
            caplog.clear()
            security.warn_of_expiring_certificates()
            assert [record.levelname for record in caplog.records] == ([] if expected is None else [expected])
            tls.expires_at = 0.0


@pytest.mark.parametrize("days", [1, 400, 365 * 30])
def test_the_expiry_of_a_certificate_is_read(tmp_path: Path, days: int) -> None:
    identity = Authority.new("CA").issue("b", ["localhost"], days=days)
    identity.write(tmp_path / "key.pem")
    identity.write_pkcs12(tmp_path / "key.p12", "sesame")
    expected = identity.certificate.not_valid_after_utc.timestamp()
    pem = {"ssl.keystore.location": str(tmp_path / "key.pem")}
    pkcs12 = {"ssl.keystore.location": str(tmp_path / "key.p12"), "ssl.keystore.password": "sesame"}
    text = {"ssl.keystore.certificate.chain": identity.pem()}
    for settings in (pem, pkcs12, text):
        certificate = own_certificate(settings)
        assert certificate is not None
        assert expiry_time(certificate) == expected
        for cut in range(0, len(certificate), 7):
            expiry_time(certificate[:cut])  # no exception
    assert own_certificate({}) is None
    assert expiry_time(None) == math.inf


def test_the_age_of_an_open_transaction() -> None:
    with Broker({"t": 1}, config=MEASURED) as broker:
        age = "barnabas_oldest_open_transaction_seconds"
        assert one(values(read(broker)), age) == 0

        async def begin() -> None:
            producer = OwnProducer(broker.bootstrap, transactional_id="x")
            async with producer, producer.transaction():
                await producer.send_and_wait("t", b"v")
                manager = broker.server.state.transaction_coordinator.state_manager
                (entry,) = manager.transactions
                entry.metadata = entry.metadata._replace(start_ms=entry.metadata.start_ms - 60_000)
                metrics = broker.server.metrics
                assert metrics is not None
                samples = {sample.family: sample.value for sample in (await metrics.reading()).samples}
                assert 60 <= samples[age] < 120
                partition = broker.server.state.replica_manager.get_partition("t", 0)
                assert partition is not None
                now_ms = broker.server.state.ports.now_ms()
                assert partition.log.producer_state.has_late_transaction(now_ms + 1000)
                assert not partition.log.producer_state.has_late_transaction(now_ms - 100_000)

        broker._call(begin())


def test_throttled_requests_are_counted_by_quota() -> None:
    with Broker({"t": 1}, config=MEASURED) as broker:

        async def limit() -> None:
            async with Admin(broker.bootstrap) as admin:
                await admin.alter_quotas({"client-id": "slow"}, {"producer_byte_rate": 1000.0})

        broker._call(limit())
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "slow", "linger.ms": 0})
        for _ in range(3):
            producer.produce("t", bytes(6000))
            assert producer.flush(60) == 0
        found = values(read(broker))
        assert one(found, "barnabas_throttled_requests_total", quota="Produce") >= 1
        assert one(found, "barnabas_throttle_time_seconds_total", quota="Produce") > 0.5
        assert one(found, "barnabas_throttled_requests_total", quota="Fetch") == 0


def test_the_room_of_each_log_directory(tmp_path: Path) -> None:
    with Broker(config=MEASURED) as broker:
        (path,) = [log_dir.path for log_dir in broker.server.state.log_manager.dirs]
        found = values(read(broker))
        free = one(found, "barnabas_log_directory_free_bytes", log_directory=path)
        assert 0 < free <= one(found, "barnabas_log_directory_total_bytes", log_directory=path)
        assert one(found, "barnabas_log_directory_full", log_directory=path) == 0


def test_prometheus_loads_the_rules_of_the_package() -> None:
    configuration = yaml.safe_load((ROOT / "docker" / "prometheus.yml").read_text())
    compose = yaml.safe_load((ROOT / "docker" / "docker-compose.yml").read_text())
    mounted = dict(volume.split(":")[:2][::-1] for volume in compose["services"]["prometheus"]["volumes"])
    (rules,) = configuration["rule_files"]
    assert (ROOT / "docker" / mounted[rules]).resolve() == ROOT / "tools" / "service" / "alerts.yml"
    (job,) = configuration["scrape_configs"]
    expressions = (ROOT / "tools" / "service" / "alerts.yml").read_text()
    assert re.findall(r'up\{job="(.+?)"\}', expressions) == [job["job_name"]]
