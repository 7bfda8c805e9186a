"""The source and the sink against an Apache Kafka that wants TLS, certificates or passwords."""

import ssl
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.secured_kafka import PASSWORD, SECURE_MODES, SecuredKafka, secured_kafka, topic_of
from tests.spark.conftest import read

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.spark.rows import arrow_schema
from barnabas.spark.sink import TaskIdentity, TaskSink, parse_sink_options

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(280)]
SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured") / "kafka") as server:
        yield server


def options(kafka: SecuredKafka, mode: str, password: str = PASSWORD) -> dict[str, str]:
    """As Spark's own connector wants them."""
    return {f"kafka.{name}": value for name, value in kafka.settings(mode, password).items()}


@pytest.mark.parametrize("mode", SECURE_MODES)
def test_rows_go_there_and_back(kafka: SecuredKafka, mode: str) -> None:
    topic = topic_of(mode)
    secured = options(kafka, mode)
    wanted = [{"key": b"k%d" % i, "value": b"v%d" % i} for i in range(1000)]
    sink = TaskSink(parse_sink_options({**secured, "topic": topic}, SCHEMA, streaming=False))
    batch = pa.RecordBatch.from_pylist(wanted, schema=arrow_schema(SCHEMA))
    assert sink.write(iter([batch]), TaskIdentity("query", 0, 0)).rows == 1000
    assert read({**secured, "subscribe": topic}, SCHEMA) == wanted


@pytest.mark.parametrize("mode", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_said(kafka: SecuredKafka, mode: str) -> None:
    with pytest.raises(KafkaError) as failed:
        read({**options(kafka, mode, "wrong"), "subscribe": "t"})
    assert failed.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_broker_that_nobody_vouches_for_gets_no_password(kafka: SecuredKafka) -> None:
    trusting = {name: value for name, value in options(kafka, "PLAIN").items() if "truststore" not in name}
    with pytest.raises(KafkaError) as failed:
        read({**trusting, "subscribe": "t", "kafka.request.timeout.ms": "5000"})
    assert (
        isinstance(failed.value.__cause__, ssl.SSLCertVerificationError) or "CERTIFICATE" in str(failed.value).upper()
    )
