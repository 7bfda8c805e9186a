"""Clients that push their metrics: who may when, what is asked of whom, and what is kept of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from barnabas.protocol.compression import Compression, compress
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.config.listeners import ListenerConfig
from barnabas.server.metrics.tables import client_families
from barnabas.server.security.session import Session
from barnabas.server.telemetry import client_metrics_manager, otlp_metrics, received_metrics
from barnabas.server.telemetry.client_metrics_manager import ClientMetricsInstance, ClientMetricsManager
from barnabas.server.telemetry.otlp_metrics import MAX_SERIES, read_metrics

NOBODY = UUID(int=0)
MAX_BYTES = 1 << 20
SETTINGS = {"metrics": "*", "interval.ms": "1000"}


class AtOnce:
    """Lanes on which everything is done at once."""

    async def run(self, lane: str, job: Callable[[], Any]) -> Any:
        return job()


class Plane:
    """What takes telemetry, and its clock in seconds."""

    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.now = 1000.0
        self.config = DynamicConfig(BrokerConfig({}))
        numbers = itertools.count(1)
        self.telemetry = ClientMetricsManager(
            self.config.config,
            self.config,
            now=lambda: self.now,
            token_bytes=lambda size: next(numbers).to_bytes(size, "big"),
            work=cast("Any", AtOnce()),
        )
        for name, settings in (subscriptions or {"all": SETTINGS}).items():
            self.subscribe(name, settings)

    def subscribe(self, name: str, settings: dict[str, str]) -> None:
        self.config.named_config_changed(ConfigResourceType.CLIENT_METRICS, name, settings)

    def ask(self, session: Session, client: UUID = NOBODY, client_id: str = "app") -> ClientMetricsInstance:
        return self.telemetry.subscriptions_of(session, client_id, client)

    async def push(self, session: Session, client: ClientMetricsInstance, data: bytes = b"", **fields: Any) -> None:
        request = PushTelemetryRequest(client_instance_id=client.id, subscription_id=client.subscription, metrics=data)
        for name, value in fields.items():
            setattr(request, name, value)
        await self.telemetry.push(session, request)

    def told(self) -> dict[str, dict[str, float]]:
        return {
            dict(one.labels)["client_id"]: {series.name: series.value for series in one.series}
            for one in self.telemetry.received()
        }


def session(host: str = "10.0.0.1", software: tuple[str, str] = ("apache-kafka-java", "4.1.1")) -> Session:
    return Session(host, ListenerConfig("PLAINTEXT", host, 9092), software=software, client_port=4711)


def otlp(
    gauges: dict[str, float] | None = None, sums: dict[str, float] | None = None, *, temporality: int = 2
) -> bytes:
    message = MetricsData()
    of_resource = message.resource_metrics.add()
    of_resource.resource.attributes.append(KeyValue(key="client_rack", value=AnyValue(string_value="r1")))
    metrics = of_resource.scope_metrics.add().metrics
    for name, value in (gauges or {}).items():
        point = metrics.add(name=name).gauge.data_points.add(as_double=value)
        point.attributes.append(KeyValue(key="node-id", value=AnyValue(int_value=7)))
    for name, value in (sums or {}).items():
        total = metrics.add(name=name).sum
        total.is_monotonic, total.aggregation_temporality = True, cast("Any", temporality)
        total.data_points.add(as_int=int(value))
    return message.SerializeToString()


async def refused(
    code: ErrorCode, plane: Plane, client: ClientMetricsInstance, data: bytes = b"", **fields: Any
) -> None:
    with pytest.raises(KafkaError) as error:
        await plane.push(session(), client, data, **fields)
    assert error.value.code is code


async def test_a_client_asks_and_pushes_in_its_time() -> None:
    plane = Plane()
    client = plane.ask(session())
    assert client.requested == (("*",), 1000)
    assert client.id not in client_metrics_manager.RESERVED
    assert -(2**31) <= client.subscription < 2**31
    await plane.push(session(), client, otlp({"org.apache.kafka.producer.x.rate": 1.5}))
    assert plane.told() == {"app": {"producer_x_rate": 1.5}}
    await refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, plane, client)
    with pytest.raises(KafkaError, match="before the next push interval"):
        plane.ask(session(), client.id)
    plane.now += 1
    await plane.push(session(), client, otlp({"org.apache.kafka.producer.x.rate": 2}))
    assert plane.told() == {"app": {"producer_x_rate": 2}}


async def test_what_is_no_push() -> None:
    plane = Plane()
    client = plane.ask(session())
    await refused(ErrorCode.INVALID_REQUEST, plane, client, client_instance_id=NOBODY)
    await refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, plane, client, client_instance_id=UUID(int=77))
    await refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, plane, client, subscription_id=client.subscription + 1)
    assert plane.ask(session(), client.id) is client, "it may ask again at once"
    plane.now += 1
    await refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, plane, client, compression_type=9)
    plane.now += 1
    await refused(ErrorCode.TELEMETRY_TOO_LARGE, plane, client, bytes(MAX_BYTES + 1))
    plane.now += 1
    await refused(ErrorCode.INVALID_RECORD, plane, client, b"\xff\xff")
    plane.now += 1
    await refused(ErrorCode.INVALID_RECORD, plane, client, b"no zstd", compression_type=Compression.ZSTD)
    assert plane.told() == {}


async def test_after_its_last_push_a_client_is_heard_no_more() -> None:
    plane = Plane()
    client = plane.ask(session())
    await plane.push(session(), client, otlp({"a": 1}))
    await plane.push(session(), client, otlp({"a": 2}), terminating=True)
    plane.now += 1
    await refused(ErrorCode.INVALID_REQUEST, plane, client)
    assert plane.told() == {"app": {"a": 2}}, "what it told last is there until it is forgotten"
    plane.now += 120
    assert plane.told() == {}


async def test_nobody_takes_their_leave_again_and_again() -> None:
    plane, connection = Plane(), session()
    client = plane.ask(connection)
    await plane.push(connection, client, otlp({"a": 1}))
    await plane.push(connection, client, otlp({"a": 2}), terminating=True)
    await refused(ErrorCode.INVALID_REQUEST, plane, client)
    await refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, plane, client, otlp({"a": 3}), terminating=True)
    with pytest.raises(KafkaError, match="before the next push interval"):
        plane.ask(connection, UUID(int=5))
    other = plane.telemetry._clients[UUID(int=5)]
    await refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, plane, other, otlp({"a": 3}), terminating=True)
    plane.now += 1
    await refused(ErrorCode.INVALID_REQUEST, plane, other)
    await plane.push(connection, other, otlp({"a": 4}), terminating=True)
    assert plane.told() == {"app": {"a": 4}}


async def test_a_changed_subscription_is_told_at_once() -> None:
    plane = Plane()
    client = plane.ask(session())
    before = client.subscription
    plane.subscribe("all", SETTINGS | {"metrics": "org.apache.kafka.consumer."})
    await refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, plane, client, subscription_id=before)
    assert plane.ask(session(), client.id).requested.metrics == ("org.apache.kafka.consumer.",)
    plane.subscribe("all", {})
    assert plane.ask(session(), client.id).requested == ((), 300_000)


@pytest.mark.parametrize(
    ("match", "is_meant"),
    [
        ("client_id=app", True),
        ("client_id=ap", False),
        ("client_id=a.*, client_source_address=10\\..*", True),
        ("client_id=a.*,client_source_address=127.*", False),
        ("client_software_name=apache-kafka-(?<kind>java|python)", True),
        ("client_software_version=4\\..*", True),
        ("client_source_port=4711", True),
        ("client_id=\\p{Lower}+", False),
        ("client_id=[a-z&&[^b]]+", False),
        ("client_id=(?=a).*", False),
        ("client_id=(.|a)*(.|p)*", True),
        ("client_software_name=" + "(.*)*" * 20 + "!", False),
    ],
)
def test_whom_a_subscription_means(match: str, is_meant: bool) -> None:
    plane = Plane(one=SETTINGS | {"match": match})
    assert plane.ask(session()).requested == ((("*",), 1000) if is_meant else ((), 300_000))


def test_subscriptions_together_ask_for_all_and_soonest() -> None:
    plane = Plane(one={"metrics": "b,a", "interval.ms": "5000"}, two={"metrics": "c", "interval.ms": "7000"})
    assert plane.ask(session()).requested == (("a", "b", "c"), 5000)
    plane.subscribe("three", {"metrics": "*"})
    assert plane.ask(session()).requested == (("*",), 5000)


async def test_one_connection_is_one_client_whatever_it_calls_itself() -> None:
    plane, connection = Plane(), session()
    await plane.push(connection, plane.ask(connection), otlp({"a": 1}))
    for name in (NOBODY, UUID(int=5), UUID(int=6)):
        with pytest.raises(KafkaError, match="before the next push interval"):
            plane.ask(connection, name)
    assert len(plane.telemetry._clients) == 1
    assert plane.told() == {}


def test_no_more_clients_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics_manager, "MAX_CLIENTS", 3)
    plane = Plane()
    clients = [plane.ask(session()) for _ in range(5)]
    assert list(plane.telemetry._clients) == [client.id for client in clients[2:]]


async def test_whose_address_has_most_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_metrics, "MAX_SERIES", 13)
    plane = Plane()
    for name, host, count in (("small", "10.0.0.2", 2), ("one", "10.0.0.1", 4), ("two", "10.0.0.1", 4)):
        client = plane.ask(session(host), client_id=name)
        await plane.push(session(host), client, otlp({f"m{number}": 1 for number in range(count)}))
    silent = session()
    await plane.push(silent, plane.ask(silent, client_id="none"), otlp())
    greedy = plane.ask(session(), client_id="three")
    await plane.push(session(), greedy, otlp({f"m{number}": 1 for number in range(8)}))
    assert set(plane.told()) == {"small", "none", "three"}
    assert plane.telemetry._received._by_host == {"10.0.0.2": 3, "10.0.0.1": 10}


async def test_what_was_added_and_totals_come_to_the_same() -> None:
    plane = Plane()
    for temporality, pushes in ((1, (5, 2)), (2, (5, 7))):
        client = plane.ask(session())
        for value in pushes:
            await plane.push(session(), client, otlp(sums={"sent.total": value}, temporality=temporality))
            plane.now += 1
        assert plane.told() == {"app": {"sent": 7}}
        plane.now += 200


@pytest.mark.parametrize("codec", Compression)
def test_every_compression(codec: Compression) -> None:
    data = compress(codec, otlp({"a.b": 1}))
    pushed = read_metrics(codec, data, MAX_BYTES)
    assert pushed.resource == (("client_rack", "r1"),)
    assert pushed.points == [("a_b", False, False, (("node_id", "7"),), 1.0)]


@pytest.mark.parametrize("codec", [one for one in Compression if one])
def test_a_bomb_is_not_opened(codec: Compression) -> None:
    with pytest.raises(KafkaError) as error:
        read_metrics(codec, compress(codec, bytes(8 << 20)), MAX_BYTES)
    assert error.value.code is ErrorCode.TELEMETRY_TOO_LARGE


def test_no_client_tells_more_than_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(read_metrics(0, otlp({f"m{number}": 1 for number in range(2 * MAX_SERIES)}), MAX_BYTES).points) == 1000
    monkeypatch.setattr(otlp_metrics, "MAX_PARSED_PARTS", 50)
    hollow = MetricsData()
    for _ in range(100):
        hollow.resource_metrics.add()
    assert read_metrics(0, hollow.SerializeToString() + otlp({"a": 1}), MAX_BYTES).points == []


def test_names_and_labels_are_harmless() -> None:
    message = MetricsData()
    metric = (
        message.resource_metrics.add().scope_metrics.add().metrics.add(name='a"}\n# TYPE up gauge\nup 1' + "x" * 500)
    )
    point = metric.gauge.data_points.add(as_double=1)
    for key in ("client_id", "client_instance_id", "__name__", "9", "", "b\nc", *map(str, range(20))):
        point.attributes.append(KeyValue(key=key, value=AnyValue(string_value='v"\\\n' * 100)))
    (told,) = read_metrics(0, message.SerializeToString(), MAX_BYTES).points
    assert told.name.startswith("a_TYPE_up_gauge_up_1x") and len(told.name) <= otlp_metrics.LONGEST_NAME
    assert [name for name, _ in told.labels] == ["b_c", "name__"]
    assert {len(value) for _, value in told.labels} == {otlp_metrics.LONGEST_VALUE}


@pytest.mark.parametrize("parse", [prometheus, openmetrics])
async def test_clients_that_differ_about_a_name_break_no_scrape_and_hide_nothing(parse: Any) -> None:
    plane, is_openmetrics = Plane(), parse is openmetrics
    for name, data in (("one", otlp({"x.total_total": 1})), ("two", otlp(sums={"x": 2})), ("three", otlp({"x": 3}))):
        connection = session()
        await plane.push(connection, plane.ask(connection, client_id=name), data)
    text = "".join(client_families(plane.telemetry.received(), is_openmetrics=is_openmetrics))
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE kafka_client_")]
    assert heads == ["kafka_client_x", "kafka_client_x_total"]
    families = parse(text + "# EOF\n" * is_openmetrics)
    told = {(one.name, one.labels["client_id"]): one.value for family in families for one in family.samples}
    expected = {("kafka_client_x", "one"): 1, ("kafka_client_x_total", "two"): 2, ("kafka_client_x", "three"): 3}
    assert {key: value for key, value in told.items() if key[0].startswith("kafka_client_")} == expected
