"""`metrics.listeners`: what clients did is what Prometheus reads, under the names that the documentation has."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as families
from tests.foreign_tools import require_tool

from barnabas.clients import Admin, ShareConsumer
from barnabas.clients.admin import ConfigChange, ConfigResource
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.metrics import metrics_http, readings
from barnabas.server.metrics.catalogue import METRICS
from barnabas.server.metrics.document import render
from barnabas.server.metrics.metrics_http import FRESH_SECONDS
from barnabas.server.metrics.readings import SAMPLES_PER_TURN
from barnabas.server.metrics.request_meters import RequestMeters, Times
from barnabas.server.share import share_group_metrics
from barnabas.server.share.share_session import ShareSessionCache
from barnabas.testing import Broker, Cluster

ROOT = Path(__file__).parents[3]
OF_THE_PROCESS = ("process_", "python_")
INHERITED = {
    "kafka_consumergroup_lag_sum",
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "kafka_log_logcleanermanager_uncleanable_bytes",
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "kafka_server_group_coordinator_metrics_group_count",
    "kafka_server_group_coordinator_metrics_share_group_count",
    "kafka_server_socket_server_metrics_connection_count",
    "kafka_server_sharegroupmetrics_recordacknowledgements_total",
    "kafka_server_socket_server_metrics_failed_authentication_total",
}
"""Names that promtool finds fault with: they are Kafka's."""
PARTITIONS = 3000
MAX_SECONDS_OF_A_TURN = 0.02
"""It is less than one thousandth on a machine of today."""
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"metrics.listeners": "127.0.0.1:0", "acks.all.durability": "disk"}
    with Broker({"t": 2}, config=settings) as broker:
        yield broker


def read(broker: Broker, path: str = "/metrics", **headers: str) -> str:
    assert broker.server.metrics is not None
    (url,) = broker.server.metrics.urls
    request = urllib.request.Request(url.removesuffix("/metrics") + path, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def values(text: str) -> Values:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(text)
        for sample in family.samples
    }


def one(found: Values, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def at_work(broker: Broker) -> None:
    """A producer writes a hundred records, a group reads and commits sixty of them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "none"})
    for number in range(100):
        producer.produce("t", b"v" * 50, partition=number % 2)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert len(consumer.consume(60, timeout=60)) == 60
    consumer.commit(asynchronous=False)
    consumer.close()


def test_what_clients_did(broker: Broker) -> None:
    at_work(broker)
    found = values(read(broker))
    log_bytes = sum(one(found, "kafka_log_log_size", topic="t", partition=str(index)) for index in (0, 1))
    assert one(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 100
    assert one(found, "kafka_server_brokertopicmetrics_bytesin_total", topic="t") == log_bytes
    assert one(found, "kafka_server_brokertopicmetrics_messagesin_total") > 100, "those of groups, too"
    assert one(found, "kafka_server_brokertopicmetrics_bytesout_total", topic="t") >= log_bytes
    assert one(found, "kafka_log_log_logendoffset", topic="t", partition="1") == 50
    lags = [one(found, "kafka_consumergroup_lag", consumergroup="g", topic="t", partition=index) for index in "01"]
    assert sum(lags) == one(found, "kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 40
    produced = sum(value for (name, labels), value in found.items() if is_request(name, labels, "Produce"))
    assert produced == one(found, "kafka_server_brokertopicmetrics_totalproducerequests_total") > 0
    assert one(found, "kafka_network_requestmetrics_totaltimems_count", request="Produce") == produced
    phases = [
        one(found, f"kafka_network_requestmetrics_{phase}_sum", request="Produce")
        for phase in ("localtimems", "remotetimems", "responsesendtimems", "totaltimems")
    ]
    assert all(phase >= 0 for phase in phases)
    assert sum(phases[:3]) == pytest.approx(phases[3], rel=0.2)
    assert phases[1] > 0, "the disk was waited for"
    assert one(found, "kafka_log_logflushstats_logflushrateandtimems_count") > 0
    assert one(found, "kafka_server_replicamanager_partitioncount") == len(broker.server.state.log_manager.logs)
    assert one(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1


async def share_records(broker: Broker) -> None:
    """A member of a share group takes ten records and accepts four of them."""
    async with Admin(broker.bootstrap) as admin:
        changes = [ConfigChange("share.auto.offset.reset", "earliest")]
        await admin.alter_configs({ConfigResource(ConfigResourceType.GROUP, "sharing"): changes})
    await asyncio.to_thread(broker.produce, "shared", [b"%d" % number for number in range(10)])
    options: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}
    async with ShareConsumer(broker.bootstrap, "sharing", ["shared"], **options) as consumer:
        taken = []
        async for record in consumer:
            taken.append(record)
            if len(taken) == 10:
                break
        for record in (*taken[:3], taken[5]):
            await record.accept()
        lag = "barnabas_share_group_lag"
        await until_read(broker, 6, lag)
        await until_read(broker, 7, "kafka_server_sharepartitionmetrics_inflightmessagecount")


async def until_read(broker: Broker, value: int, name: str) -> None:
    """Wait until a metric of the share-partition has a value: responses are cached."""
    found: Values = {}
    for _ in range(60):
        found = values(await asyncio.to_thread(read, broker))
        if found.get((name, (("group", "sharing"), ("partition", "0"), ("topic", "shared")))) == value:
            return
        await asyncio.sleep(0.5)
    raise AssertionError({name: value for (name, _), value in found.items() if "share" in name})


async def test_the_lag_of_a_share_group_is_read_with_and_without_members(broker: Broker) -> None:
    await share_records(broker)
    await asyncio.to_thread(broker.produce, "shared", [b"more"])
    await until_read(broker, 7, "barnabas_share_group_lag")
    assert not broker.server.state.share_partition_manager.share_partitions


def is_request(name: str, labels: tuple[tuple[str, str], ...], api: str) -> bool:
    return name == "kafka_network_requestmetrics_requests_total" and ("request", api) in labels


def test_groups_without_end_are_counted_and_not_told_of_one_by_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work(broker)
    monkeypatch.setattr(readings, "MAX_GROUP_SERIES", 2)
    found = values(read(broker))
    assert not [name for name, _ in found if name.startswith("kafka_consumergroup")]
    assert one(found, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == 2
    assert one(found, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 1


def test_totals_of_share_groups_include_groups_and_partitions_without_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "MAX_GROUP_SERIES", 1)
    monkeypatch.setattr(share_group_metrics, "MAX_GROUPS", 1)
    metrics = share_group_metrics.ShareGroupMetrics()
    metrics.record_dead_letters("g", records=3)
    metrics.record_dead_letters("h", records=4)
    metrics.record_dead_letters("h", records=0)
    metrics.record_fetch("g", seconds=0.5, partitions=4, acquirable=1)
    metrics.record_fetch("h", seconds=1.5, partitions=4, acquirable=4)
    share = SimpleNamespace(num_in_flight_records=5, num_in_flight_batches=2, acquisition_lock_timeouts=0)
    partitions = [SimpleNamespace(group_id="g", topic_id_partition=("", "t", 0), share=share)] * 2
    sessions = ShareSessionCache(1, lambda *_: None)
    manager = SimpleNamespace(sessions=sessions, metrics=metrics, share_partitions=partitions)
    state: Any = SimpleNamespace(share_partition_manager=manager)
    requests: Any = None
    samples = [
        one for one in readings.Readings(state, requests, Times(), Times())._of_share_groups() if one is not None
    ]
    found = {(one.family.rpartition("_")[2], one.labels.get("group")): one.value for one in samples}
    assert found["inflightmessagecount", None] == 10 and found["inflightmessagecount", "g"] == 5
    assert found["deadletterqueuerecordcount", None] == 7 and found["deadletterqueuerecordcount", "g"] == 3
    assert found["deadletterqueuefailedproducerequests", None] == 1
    assert ("deadletterqueuerecordcount", "h") not in found
    of_sums = [one for one in samples if one.part == "_sum"]
    sums = {(one.family.rpartition("_")[2], one.labels.get("group")): one.value for one in of_sums}
    assert sums["topicpartitionsacquiretimems", None] == 2000 and sums["topicpartitionsacquiretimems", "g"] == 500
    assert sums["topicpartitionsfetchratio", None] == 125 and sums["topicpartitionsfetchratio", "g"] == 25
    assert ("topicpartitionsfetchratio", "h") not in sums


def test_the_lag_of_a_topic_is_told_where_all_of_it_is_here() -> None:
    """Of the others' partitions nobody knows here how far they go: what is left is no sum."""
    here = {("whole", 0): 7, ("whole", 1): 9, ("part", 0): 8}
    replicas = {place: SimpleNamespace(high_watermark=end) for place, end in here.items()}
    state = SimpleNamespace(replica_manager=SimpleNamespace(get_partition=lambda *place: replicas.get(place)))
    committed = dict.fromkeys([*here, ("part", 1)], SimpleNamespace(offset=5))
    group = SimpleNamespace(group_id="g", members=(), offsets=SimpleNamespace(committed=committed))
    tables = readings.GroupTables.empty()
    list(readings.Readings(state, None, Times(), Times())._of_group(group, tables))  # type: ignore[arg-type]
    assert tables.lags.rows == [("g", *place) for place in here]
    assert tables.lag_sums.rows == [("g", "whole")]
    assert list(tables.lag_sums.column("kafka_consumergroup_lag_sum")) == [6]


def test_topics_that_come_and_go_leave_only_their_sum(broker: Broker) -> None:
    meters = RequestMeters(time.perf_counter, lambda _: None)
    meters.bytes_out.update({"t": 3, **{f"gone-{number}": 2 for number in range(100)}})
    reading = readings.Readings(broker.server.state, meters, Times(), Times())
    for _ in range(2):
        topics, sent = readings._topic_table(), readings._sent_table()
        assert len(list(reading._of_topics(topics, sent))) > 0
        assert dict(zip(sent.rows, sent.column("kafka_server_brokertopicmetrics_bytesout"), strict=True)) == {
            (): 203,
            ("t",): 3,
        }
    assert len(meters.bytes_out) == 2


def test_counters_go_on_when_topics_go(broker: Broker) -> None:
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    broker.produce("t", ["a"] * 5)
    before = values(read(broker))
    broker.delete_topic("t")
    broker.create_topic("t")
    broker.produce("t", ["a"] * 2)
    broker._call(asyncio.sleep(FRESH_SECONDS))
    after = values(read(broker))
    assert (one(before, name), one(before, name, topic="t")) == (5, 5)
    assert one(after, name) == 7


def test_what_followers_fetch_is_not_sent_to_readers() -> None:
    name = "kafka_server_brokertopicmetrics_bytesout_total"
    with Cluster(2, {"t": 1}, config={"metrics.listeners": "127.0.0.1:0"}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for _ in range(20):
            producer.produce("t", b"v" * 1000)
        assert producer.flush(60) == 0
        leader = cluster.server(cluster.leader("t"))
        assert leader.metrics is not None
        (log,) = [log for tp, log in leader.state.log_manager.logs.items() if tp.topic == "t"]
        assert leader.metrics.requests.bytes_out.total() == 0
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("t", 0, 0)])
        assert len(consumer.consume(20, timeout=60)) == 20
        consumer.close()
        assert leader.metrics.requests.bytes_out["t"] == log.size
        assert one(values(read(SimpleNamespace(server=leader))), name) == log.size  # type: ignore[arg-type]


def test_every_metric_is_in_the_catalogue_and_in_the_documentation(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work(broker)
    share_metrics = broker.server.state.share_coordinator.metrics
    monkeypatch.setattr(share_metrics, "remove_partitions", lambda is_led: None)
    share_metrics.record_prune(0, 5)
    sasl = SimpleNamespace(mechanisms=("PLAIN",), failures=Counter())
    secured = SimpleNamespace(sasl=sasl, tls=SimpleNamespace(failures=0, seconds_until_expiry=1.0))
    monkeypatch.setitem(broker.server.state.security.listener_security, "SECURED", secured)
    # The last step: it reads the metrics, and responses are cached.
    asyncio.run(share_records(broker))
    told = {family.name for family in families(read(broker)) if not family.name.startswith(OF_THE_PROCESS)}
    assert told == set(METRICS)
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert page == render()
    rows = set(re.findall(r"^\| `(\w+)` ", page.partition("## Kafka metrics")[0], re.M))
    assert rows == {name + ("_total" if METRICS[name].kind == "counter" else "") for name in METRICS}


def test_openmetrics_for_who_asks_for_it(broker: Broker) -> None:
    text = read(broker, accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    assert {family.name for family in openmetrics(text)} >= {"kafka_log_log_size", "barnabas_info"}


def test_who_asks_again_at_once_gets_the_same(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    # A record is written meanwhile, which a busy disk takes its time for.
    monkeypatch.setattr(metrics_http, "FRESH_SECONDS", 60.0)
    first = read(broker)
    broker.produce("t", ["a"])
    assert read(broker) == first


def test_probes_from_outside(broker: Broker) -> None:
    for path in ("/health", "/ready"):
        assert '"ready": true' in read(broker, path, Host="broker.example.org")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        read(broker, "/compaction")
    broker.server.failed.set()
    with pytest.raises(urllib.error.HTTPError, match="503"):
        read(broker, "/ready")


def test_metrics_are_refused_under_a_foreign_name(broker: Broker) -> None:
    with pytest.raises(urllib.error.HTTPError, match="421"):
        read(broker, "/metrics", Host="evil.example.org:9404")
    settings = {
        "metrics.listeners": "127.0.0.1:0",
        "metrics.allowed.hosts": "metrics.example.org",
        "advertised.listeners": "PLAINTEXT://kafka.example.org:9092",
    }
    with Broker(config=settings) as another:
        for host in ("metrics.example.org", "kafka.example.org:9404", "10.0.0.7:9404", socket.gethostname()):
            assert "barnabas_info" in read(another, "/metrics", Host=host)


def test_a_name_of_a_group_breaks_no_line(broker: Broker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": 'a"b\\c\nd{}', "log_level": 0})
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(0.05)
    found = values(read(broker))
    consumer.close()
    assert one(found, "kafka_consumergroup_members", consumergroup='a"b\\c\nd{}') == 1


def test_without_the_setting_nothing_is_measured() -> None:
    with Broker(["t"]) as broker:
        broker.produce("t", ["a"])
        assert broker.server.metrics is None
        assert broker.server.state.replica_manager.group_commit.on_flushed is None


@pytest.mark.parametrize("addresses", ["9404", "host", "host:99999", "host:-1"])
def test_addresses_that_are_none(addresses: str) -> None:
    with pytest.raises(ConfigError, match="must be host:port"):
        BrokerConfig({"metrics.listeners": addresses})


def test_who_opens_it_to_everybody_is_told() -> None:
    config = BrokerConfig({"metrics.listeners": ":9404, 127.0.0.1:9405, [::1]:9406"})
    assert config.metrics_addresses == (("", 9404), ("127.0.0.1", 9405), ("::1", 9406))
    assert [line for line in config.startup_warnings if "9404" in line] != []
    assert not [line for line in config.startup_warnings if "9405" in line or "9406" in line]


def test_a_port_that_is_taken_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=str(port)), Broker(config={"metrics.listeners": f"127.0.0.1:{port}"}):
            pass


def test_a_scrape_of_many_partitions_wakes_no_garbage_collector() -> None:
    """A tuple for each would: all that the broker has is then gone through, which takes longer than all reading."""
    with Broker({"t": 150}, config={"metrics.listeners": "127.0.0.1:0"}) as broker:
        metrics = broker.server.metrics
        assert metrics is not None

        async def kept() -> int:
            await metrics.reading()
            gc.collect()
            gc.disable()
            try:
                before = len(gc.get_objects())
                reading = await metrics.reading()
                added = len(gc.get_objects()) - before
            finally:
                gc.enable()
            assert [len(table.rows) for table in reading.tables if "kafka_log_log_size" in table.families] == [150]
            return added

        assert broker._call(kept()) < 150


@pytest.mark.verify
def test_a_scrape_of_many_partitions_gives_way_to_others() -> None:
    """Time of the processor, not by the clock: whatever else the machine does, it is what the loop is busy for."""
    with Broker({"t": PARTITIONS}, config={"metrics.listeners": "127.0.0.1:0"}) as broker:
        metrics = broker.server.metrics
        assert metrics is not None

        async def turns(work: asyncio.Task[object]) -> list[float]:
            """How long each turn of the loop was while that went on."""
            gc.collect()
            found, last = list[float](), time.thread_time()
            while not work.done():
                await asyncio.sleep(0)
                now = time.thread_time()
                found.append(now - last)
                last = now
            return found

        async def looked_at() -> list[float]:
            return await turns(asyncio.create_task(metrics.reading()))

        of_reading = min((broker._call(looked_at()) for _ in range(3)), key=max)
        began = time.process_time()
        told = values(read(broker))
        spent = time.process_time() - began
        assert one(told, "kafka_log_log_logendoffset", topic="t", partition=str(PARTITIONS - 1)) == 0
        print(
            f"{PARTITIONS} partitions: {1000 * sum(of_reading):.0f} ms of the loop in {len(of_reading)} turns, the "
            f"longest {1000 * max(of_reading):.1f} ms; {1000 * spent:.0f} ms for a scrape, reading it included"
        )
        assert len(of_reading) >= PARTITIONS / SAMPLES_PER_TURN, "so many logs in a turn"
        assert max(of_reading) < MAX_SECONDS_OF_A_TURN


def test_promtool_finds_fault_with_kafkas_names_only(broker: Broker) -> None:
    promtool = require_tool("promtool", "apt-get install prometheus")
    at_work(broker)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=read(broker), capture_output=True, text=True, timeout=30, check=False
    )
    complaints = {line.split()[0] for line in done.stderr.splitlines()}
    assert complaints <= INHERITED, done.stderr


def test_two_who_ask_at_once_count_nothing_twice() -> None:
    with Broker({"t": 2 * SAMPLES_PER_TURN}, config={"metrics.listeners": "127.0.0.1:0"}) as broker:
        for partition in range(2 * SAMPLES_PER_TURN):
            broker.produce("t", ["x"], partition=partition)
        metrics = broker.server.metrics
        assert metrics is not None

        async def both() -> None:
            await asyncio.gather(metrics._render("text"), metrics._render("application/openmetrics-text"))

        broker._call(both())
        assert values(read(broker))["kafka_server_brokertopicmetrics_messagesin_total", ()] == 2 * SAMPLES_PER_TURN
