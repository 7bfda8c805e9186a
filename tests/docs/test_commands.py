"""The commands and programs of reference pages, each run as it is written, with the cluster that the page assumes."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import pty
import shlex
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.barnabas_server import BarnabasServer
from tests.compat.test_kraft_local_cluster import kafka_home
from tests.docs.page import COMMAND_SECONDS, Reader, blocks_of, commands_of
from tests.kafka import NEWEST, KafkaTools, kafka_jars
from tests.server_process import free_port, wait_until

from barnabas import Broker
from barnabas.clients import Admin, Consumer, Producer, TopicPartition
from barnabas.clients.admin import NewTopic, raise_first
from barnabas.clients.certificates import Authority
from barnabas.protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.timeout(5 * COMMAND_SECONDS)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPICS = ("flights", "planes", "orders", "copies")


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Broker(config=settings) as running:
        yield running


def python_of(page: str) -> list[str]:
    return [block.code for block in blocks_of(page) if block.language == "python" and not block.file]


def with_records(broker: Broker) -> None:
    """Create the topics that are missing, with records that the group `readers` has read in part."""

    async def work() -> None:
        async with Admin(broker.bootstrap) as admin:
            there = {topic.name for topic in await admin.describe_topics()}
            missing = [NewTopic(name, num_partitions=2) for name in TOPICS if name not in there]
            raise_first(await admin.create_topics(missing))
            for name in (topic.name for topic in missing):
                for partition in range(2):
                    broker.produce(name, ["x"] * 1200, partition=partition)
            offsets = {TopicPartition(name, index): 600 for name in ("flights", "planes") for index in range(2)}
            raise_first(await admin.alter_group_offsets("readers", offsets))

    asyncio.run(work())


@contextmanager
def terminal(command: str, until: str, environment: dict[str, str]) -> Iterator[int]:
    """Run a command on a pseudo terminal until it has shown a text."""
    process_id, descriptor = pty.fork()
    if process_id == 0:
        os.execvpe("bash", ["bash", "-c", f"exec {command}"], environment)
    shown = bytearray()

    def read() -> None:
        try:
            while data := os.read(descriptor, 65536):
                shown.extend(data)
        except OSError:  # the command has ended
            return

    thread = threading.Thread(target=read)
    thread.start()
    try:
        wait_until(lambda: until.encode() in shown, timeout_s=COMMAND_SECONDS, what=f"{command} shows {until}")
        yield descriptor
        _, status = os.waitpid(process_id, 0)
        assert os.waitstatus_to_exitcode(status) == 0, shown.decode(errors="replace")
        process_id = 0
    finally:
        if process_id:
            os.kill(process_id, signal.SIGKILL)
            os.waitpid(process_id, 0)
        thread.join()
        os.close(descriptor)


@pytest.mark.verify
def test_clients(broker: Broker, tmp_path: Path) -> None:
    port = free_port()
    with_records(broker)
    with Reader("clients.md", tmp_path, broker.bootstrap) as reader:
        with reader.running("barnabas consume flights -G readers", "0 600 x"):
            pass
        assert "readers" in reader.run("barnabas group list")
        assert "readers" in reader.run("barnabas group describe readers")
        assert "readers" in reader.run("barnabas group lag")
        rows = json.loads(reader.run("barnabas group lag readers --partitions --json"))
        assert {(row["topic"], row["partition"]) for row in rows} >= {("flights", 0), ("planes", 1)}
        with reader.running("barnabas group lag --watch", "readers"):
            pass
        broker.produce("flights.eu", ["x"])
        with reader.running("barnabas consume orders '^flights", "flights.eu x"):
            pass
        assert "kB" in reader.run("barnabas topic describe flights")
        reader.run("barnabas topic delete flights")
        with_records(broker)
        reader.run("barnabas topic delete-records flights --before 1000")
        reader.run("barnabas config alter topic flights")
        reader.run("barnabas config alter broker 1")
        assert broker.bootstrap in reader.run("barnabas broker list")
        reader.run("barnabas quota set producer_byte_rate=1000000 --user anna")
        reader.run("barnabas acl add --principal User:anna")
        environment = {**os.environ, "BARNABAS_BOOTSTRAP_SERVER": broker.bootstrap, "TERM": "xterm", "COLUMNS": "160"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with terminal(reader.take("barnabas top"), "flights", environment) as keys:
            os.write(keys, b"q")
        address = f"127.0.0.1:{port}"
        with reader.running("barnabas console", f"http://{address}", f" --listen {address}"):
            assert "Barnabas" in page_at(f"http://{address}/")
        assert "1000" in reader.run("barnabas group reset-offsets readers --all-topics")
        reader.run("barnabas group reset-offsets readers -t flights:0,1")
        reader.run("barnabas group reset-offsets readers -t flights -t planes --by-duration")
        reader.run("barnabas group delete readers")


def page_at(url: str) -> str:
    with urllib.request.urlopen(url, timeout=COMMAND_SECONDS) as response:
        text: str = response.read().decode()
        return text


def test_programs_of_clients(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of the page, in its order but for the last, which creates the topic of the others."""
    monkeypatch.chdir(tmp_path)
    Authority.new("for this test", 1).write(tmp_path / "ca.pem")
    security, produce, transaction, consume, admin = python_of("clients.md")
    printed: list[tuple[object, ...]] = []
    names: dict[str, Any] = {
        "TopicPartition": TopicPartition,
        "print": lambda *values: printed.append(values),
    }

    async def run(code: str) -> None:
        """Run a block with the names of the blocks before it, as in an interactive session."""
        text = code.replace("localhost:9092", broker.bootstrap)
        coroutine = eval(compile(text, "docs", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if coroutine is not None:
            await coroutine

    async def work() -> None:
        await run(security)
        assert names["security"].mechanism == "SCRAM-SHA-512"
        await run(admin)
        await run(produce)
        assert names["metadata"].offset == 0
        await run("from barnabas.clients import Consumer")
        async with Consumer(broker.bootstrap, group_id="copier", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["flights"])
            names.update(consumer=consumer, record=await consumer.getone())
            await run(transaction)
        printed.clear()
        # This block reads until it is cancelled.
        reading = asyncio.create_task(run(consume))
        async with asyncio.timeout(COMMAND_SECONDS):
            while not printed and not reading.done():
                await asyncio.sleep(0.01)
        assert not reading.done()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert printed == [(names["metadata"].partition, 0, b"EWR to IAH")]

    asyncio.run(work())
    assert [record.value for record in broker.records("copies")] == [b"EWR to IAH"]


@pytest.mark.verify
def test_cluster(tmp_path: Path) -> None:
    first = three_ports()
    with Reader("cluster.md", tmp_path, f"127.0.0.1:{first}") as reader:
        try:
            assert "ready in" in reader.run("barnabas cluster start -n 3", f" --port {first}")
            assert "coordinator" in reader.run("barnabas cluster status")
            reader.run("barnabas cluster kill 2")
            reader.run("barnabas cluster start 2")
            assert reader.run("barnabas cluster stop").count("stopped") == 4
        finally:
            reader.end("barnabas cluster stop")
        for begin in ("start --controllers kafka", "status", "kill 102", "quorum"):
            reader.take(f"barnabas cluster {begin}")  # test_a_cluster_with_controllers_of_kafka
        tree, port = free_port(), free_port()
        # The page starts both in the foreground, each in a terminal of its own.
        coordinator = reader.take("barnabas coordinator").replace("127.0.0.1:2181", f"127.0.0.1:{tree}")
        start = reader.take("barnabas start").replace("127.0.0.1:2181", f"127.0.0.1:{tree}").replace("9092", str(port))
        with reader.foreground(coordinator, str(tree)), reader.foreground(start, "ready broker.id=1"):
            pass


@pytest.mark.java
@pytest.mark.verify
def test_a_cluster_with_controllers_of_kafka(tmp_path: Path) -> None:
    first = three_ports()
    home = {"~/kafka_2.13-4.4.0": str(kafka_home(tmp_path / "kafka", kafka_jars(NEWEST)))}
    with Reader("cluster.md", tmp_path, f"127.0.0.1:{first}", home) as reader:
        for begin in ("start -n 3", "status", "kill 2", "start 2", "stop"):
            reader.take(f"barnabas cluster {begin}")
        try:
            assert "ready in" in reader.run("barnabas cluster start --controllers kafka", f" --port {first}")
            assert "101" in reader.run("barnabas cluster status")
            reader.run("barnabas cluster kill 102")
            assert "leader 10" in reader.run("barnabas cluster quorum")
        finally:
            reader.end("barnabas cluster stop")
        reader.take("barnabas coordinator")
        reader.take("barnabas start")


def test_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = python_of("compaction.md")
    compacted: list[str] = []
    compact = Broker.compact

    def counted(broker: Broker, topic: str, **how: Any) -> None:
        compact(broker, topic, **how)
        compacted.append(topic)

    monkeypatch.setattr(Broker, "compact", counted)
    exec(code, {"Broker": Broker})
    assert compacted == ["state"]


@pytest.mark.verify
def test_console(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    with Reader("console.md", tmp_path, broker.bootstrap) as reader:
        reader.take("pip install")
        for schemas in range(2):
            listen, kafka, own = free_port(), free_port(), free_port()
            started = f"console http://127.0.0.1:{own}"
            # A registry that does not answer is asked for schemas when a record needs one.
            with reader.running("barnabas console", f"http://127.0.0.1:{listen}", f" --listen 127.0.0.1:{listen}"):
                assert "Barnabas" in page_at(f"http://127.0.0.1:{listen}/")
            command = reader.take("barnabas start")
            assert ("--console-schemas" in command) is bool(schemas)
            assert " --console" in command
            command = command.replace(" --console", f" --console 127.0.0.1:{own}", 1)
            with reader.foreground(f"{command} --port {kafka}", started):
                assert "Barnabas" in page_at(f"http://127.0.0.1:{own}/")


def test_metrics(tmp_path: Path) -> None:
    kafka, metrics = free_port(), free_port()
    with Reader("metrics.md", tmp_path, "", {"9404": str(metrics)}) as reader:
        with reader.running("barnabas start", "ready broker.id", f" --port {kafka}"):
            assert "kafka_server_replicamanager_partitioncount" in reader.run("curl")
        reader.take("kafka-client-metrics.sh")  # test_scripts_of_kafka
        reader.take("kafka-configs.sh")


def test_quotas(broker: Broker, tmp_path: Path) -> None:
    with Reader("quotas.md", tmp_path, broker.bootstrap) as reader:
        reader.run("barnabas quota set producer_byte_rate")
        reader.run("barnabas quota set connection_creation_rate")
        listed = reader.run("barnabas quota list")
        assert "ann" in listed and "192.0.2.7" in listed


def test_service(tmp_path: Path) -> None:
    with Reader("how-to/service.md", tmp_path, "") as reader:
        assert "\nType=notify\n" in reader.run("barnabas service print --user")


def test_schema_registry(broker: Broker, tmp_path: Path) -> None:
    port = free_port()
    with Reader("schema-registry.md", tmp_path, broker.bootstrap) as reader:
        reader.take("pip install")
        url = f"http://127.0.0.1:{port}"
        with reader.running("barnabas schema-registry", url, f" --listen 127.0.0.1:{port}"):
            assert page_at(f"{url}/subjects") == "[]"
    (code,) = python_of("schema-registry.md")
    exec(code + "    subjects = registry.get_subjects()\n", names := dict[str, Any]())
    assert names["subjects"] == []


def test_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker({"flights": 1, "orders": 1}, schema_registry=True) as broker:
        schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
        serializer = AvroSerializer(SchemaRegistryClient({"url": broker.schema_registry_url}), json.dumps(schema))
        value = serializer({"id": 1}, SerializationContext("orders", MessageField.VALUE))
        broker.produce("orders", [value])
        broker.produce("flights", ["EWR to IAH"] * 3)
        replaced = {
            "iceberg:///var/lake": f"iceberg://{tmp_path}/lake",
            "http://localhost:8081": broker.schema_registry_url,
        }
        with Reader("tables.md", tmp_path, broker.bootstrap, replaced) as reader:
            assert "1" in reader.run("barnabas table follow", " --once")
            reader.take("barnabas spark export")  # tests/table/test_spark_export.py runs it with jars of its own
            reader.run("barnabas table unit")
            assert "ExecStart=" in (tmp_path / "orders-table.service").read_text()
        (code,) = python_of("tables.md")
        exec(code.replace("localhost:9092", broker.bootstrap), names := dict[str, Any]())
        assert names["follower"].metrics.rows == 3


def test_transactions(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("flights", 1)
    broker.produce("flights", ["x"] * 4711, partition=0)
    with Reader("transactions.md", tmp_path, broker.bootstrap) as reader:

        async def work() -> None:
            async with Producer(broker.bootstrap, transactional_id="my-copier") as producer:
                with pytest.raises(KafkaError):
                    async with producer.transaction():
                        await producer.send_and_wait("flights", b"open", partition=0)
                        await asyncio.to_thread(commands)
                        raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the operator has aborted it")

        def commands() -> None:
            assert "my-copier" in reader.run("barnabas transactions list")
            assert "flights-0" in reader.run("barnabas transactions describe my-copier")
            reader.run("barnabas transactions find-hanging flights")
            reader.run("barnabas transactions abort flights 0 --start-offset 4711")

        asyncio.run(work())
        for begin in ("describe", "downgrade"):
            assert f" {begin} " in f"{reader.take('kafka-features')} "  # test_scripts_of_kafka


@pytest.mark.java
@pytest.mark.verify
def test_scripts_of_kafka(broker: Broker, tmp_path: Path) -> None:
    """The commands of pages that are scripts of Apache Kafka."""
    tools = KafkaTools()
    for page, scripts in (("metrics.md", 2), ("transactions.md", 2)):
        commands = [command for command in commands_of(page) if command.startswith("kafka-")]
        assert len(commands) == scripts
        for command in commands:
            script, *words = shlex.split(command.replace("localhost:9092", broker.bootstrap))
            done = tools.run(script.removesuffix(".sh"), *words)
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def test_debugging(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "broker") as server:
        replaced = {"PID": str(server.pid), "data/orders-0": f"{server.log_dir}/orders-0"}
        with Reader("contributing/debugging.md", tmp_path, server.bootstrap, replaced) as reader:
            reader.run("kill -USR1")
            wait_until(
                lambda: "most recent call first" in server.log.read_text() or "stack" in server.log.read_text().lower(),
                timeout_s=COMMAND_SECONDS,
                what="stacks in the log",
            )
            reader.run("barnabas config alter broker-logger 1")
            port = free_port()
            with reader.running("barnabas start --log-level DEBUG", "ready broker.id", f" --port {port}") as log:
                listed = [sys.executable, "-m", "barnabas.tools.cli", "topic", "list", "-b", f"127.0.0.1:{port}"]
                subprocess.run(listed, check=True, timeout=COMMAND_SECONDS)
                wait_until(lambda: " DEBUG " in log.read_text(), timeout_s=COMMAND_SECONDS, what="lines of DEBUG")
            produce = [sys.executable, "-m", "barnabas.tools.cli", "produce", "orders", "-b", server.bootstrap]
            subprocess.run(produce, input="a\nb\n", text=True, check=True, timeout=COMMAND_SECONDS)
            server.stop()  # which writes a snapshot
            assert "lastOffset" in (text := reader.run("barnabas dump-log")) or "offset" in text.lower()
            reader.run("barnabas dump-log")
            reader.run("barnabas dump-log")
            for begin in ("python -m soak.sim --seed", "python -m soak.sim.cluster", "python -m soak.sim.transactions"):
                reader.take(begin)  # it takes minutes; tests/simulation runs other seeds


def three_ports() -> int:
    """Return the first of three free ports in a row, before which four others are free, too."""
    for _ in range(100):
        first = free_port()
        with contextlib.suppress(OSError), contextlib.ExitStack() as sockets:
            for port in range(first - 4, first + 3):
                sockets.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no seven free ports in a row")
