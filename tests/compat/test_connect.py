"""Kafka Connect 4.3.1 with exactly-once source support: its worker is killed, and each record is there once."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.compat.connect_worker import ConnectWorker
from tests.server_process import wait_until

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(420)]

LINES, BATCH = 80_000, 200
"""Four hundred transactions. A batch is more than the task reads at once, or it would keep the end of the file back."""
PATIENCE_S = 150


class Reader:
    """The committed records of the one partition of a topic, as far as they have been read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True}
        self._consumer = Consumer({**config, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.values: list[str] = []

    def read(self) -> int:
        """What has been committed meanwhile; how many records there are so far."""
        for message in self._consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                self.values.append(message.value().decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
        return len(self.values)

    def wait_for(self, count: int) -> None:
        """At least so many are committed."""
        wait_until(lambda: self.read() >= count, timeout_s=PATIENCE_S, what=f"{count} records are committed")


@pytest.fixture
def eager_broker(tmp_path: Path) -> Iterator[str]:
    """A broker that looks for overdue transactions often."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    with BarnabasServer(tmp_path / "broker", properties=settings) as server:
        yield server.bootstrap


def test_each_record_is_there_once_though_the_worker_is_killed(eager_broker: str, tmp_path: Path) -> None:
    name = f"connect-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": eager_broker})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    lines = [f"line {number}" for number in range(LINES)]
    source = tmp_path / "lines.txt"
    source.write_text("\n".join(lines) + "\n")
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": name,
        "batch.size": str(BATCH),
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        "producer.override.transaction.timeout.ms": "10000",  # a start waits for what a killed worker left open
    }
    reader = Reader(eager_broker, name)
    with ConnectWorker(tmp_path / "worker", eager_broker, name) as worker:
        worker.ask("PUT", "connectors/lines/config", connector)
        for part in (4, 2):
            reader.wait_for(LINES // part // 2)
            worker.kill()
            assert reader.read() < LINES, "all was written before the worker was killed"
            worker.start()
        # Nobody tells it of the connector: it reads that in its topic, and where it was in the other.
        reader.wait_for(LINES)
        more = [f"more {number}" for number in range(BATCH)]
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in more)
        lines += more
        reader.wait_for(len(lines))
        assert reader.values == lines
        wait_until(
            lambda: worker.states("lines") == ["RUNNING", "RUNNING"],
            timeout_s=PATIENCE_S,
            what="connector and task run",
        )
        expected = [{"partition": {"filename": str(source)}, "offset": {"position": source.stat().st_size}}]
        wait_until(
            lambda: worker.ask("GET", "connectors/lines/offsets")["offsets"] == expected,
            timeout_s=PATIENCE_S,
            what="the offset is that of the file's end",
        )
        check_restart_from_the_beginning(worker, reader, lines)
    for kind in ("config", "offset", "status"):
        resource = ConfigResource(ConfigResource.Type.TOPIC, f"{name}-{kind}")
        assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == "compact"


def check_restart_from_the_beginning(worker: ConnectWorker, reader: Reader, lines: list[str]) -> None:
    """Offsets can be taken back while the connector is stopped, and all is written again."""
    worker.ask("PUT", "connectors/lines/stop")
    wait_until(lambda: worker.states("lines") == ["STOPPED"], timeout_s=PATIENCE_S, what="the connector is stopped")
    worker.ask("DELETE", "connectors/lines/offsets")
    worker.ask("PUT", "connectors/lines/resume")
    reader.wait_for(2 * len(lines))
    assert reader.values == lines * 2
