"""Our clients against an Apache Kafka that wants TLS, certificates or passwords."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.secured_kafka import SECURE_MODES, SecuredKafka, secured_kafka, topic_of

from barnabas.clients import Admin, Consumer, Producer, TopicPartition, security_of
from barnabas.clients.errors import BrokerUnreachableError
from barnabas.protocol import client_connection
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.schema import Versions

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(280)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured") / "kafka") as server:
        yield server


@pytest.mark.parametrize("mode", SECURE_MODES)
async def test_records_there_and_back(kafka: SecuredKafka, mode: str) -> None:
    settings, topic = kafka.settings(mode), topic_of(mode)
    bootstrap, security = settings["bootstrap.servers"], security_of(settings)
    async with Admin(bootstrap, security=security) as admin:
        assert topic in {found.name for found in await admin.describe_topics()}
    sent = [b"%d" % number * 100 for number in range(2000)]
    async with Producer(bootstrap, security=security) as producer:
        for value in sent:
            await producer.send(topic, value, partition=0)
    got: list[bytes | None] = []
    async with Consumer(bootstrap, security=security, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(got) < len(sent):
            for records in (await consumer.getmany(timeout_ms=10_000)).values():
                got += [record.value for record in records]
    assert got == sent


@pytest.mark.parametrize("mode", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_said_at_once(kafka: SecuredKafka, mode: str) -> None:
    settings = kafka.settings(mode, "wrong")
    with pytest.raises(KafkaError) as failed:
        await Admin(settings["bootstrap.servers"], security=security_of(settings)).start()
    assert failed.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_broker_that_nobody_vouches_for_gets_no_password(kafka: SecuredKafka) -> None:
    settings = {name: value for name, value in kafka.settings("PLAIN").items() if "truststore" not in name}
    with pytest.raises(BrokerUnreachableError, match=r"(?i)certificate"):
        await Admin(settings["bootstrap.servers"], security=security_of(settings)).start()


@pytest.mark.parametrize("mode", ["PLAIN", "SCRAM-SHA-256"])
async def test_frames_without_headers_as_old_brokers_want_them(
    kafka: SecuredKafka, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SaslHandshake 0, which Kafka still takes."""
    told = client_connection.versions_told

    def told_by_an_old_one(response: ApiVersionsResponse) -> dict[int, Versions]:
        return told(response) | {ApiKey.SASL_HANDSHAKE: Versions(0, 0)}

    monkeypatch.setattr(client_connection, "versions_told", told_by_an_old_one)
    settings, wrong = kafka.settings(mode), kafka.settings(mode, "wrong")
    async with Admin(settings["bootstrap.servers"], security=security_of(settings)) as admin:
        assert topic_of(mode) in {found.name for found in await admin.describe_topics()}
    with pytest.raises(BrokerUnreachableError, match="during authentication"):
        await Admin(wrong["bootstrap.servers"], security=security_of(wrong)).start()
