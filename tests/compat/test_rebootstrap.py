"""A Java client that outlives its broker, and reaches a broker of another cluster at the same address (KIP-1242)."""

import socket
import subprocess
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.barnabas_server import BarnabasServer
from tests.java import JVM_FLAGS, java_command, require_java
from tests.kafka import NEWEST, TOOL_CLASSES, kafka_jars, logging_flags
from tests.server_process import free_port, wait_until

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

MISMATCH = "Rebootstrap requested by server due to cluster metadata mismatch"
PATIENCE_S = 60


class ConsoleProducer:
    """A running kafka-console-producer, and the lines that it logs."""

    def __init__(self, bootstrap: str, *settings: str) -> None:
        require_java()
        properties = [part for setting in settings for part in ("--command-property", setting)]
        arguments = ["--bootstrap-server", bootstrap, "--topic", "t", *properties]
        flags = [*JVM_FLAGS, *logging_flags(NEWEST, "info")]
        command = java_command(TOOL_CLASSES["kafka-console-producer"], kafka_jars(NEWEST), arguments, flags)
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.lines.append(line)

    def send(self, value: str) -> None:
        """Send one record."""
        assert self._process.stdin
        self._process.stdin.write(f"{value}\n")
        self._process.stdin.flush()

    def has_logged(self, text: str) -> bool:
        """Whether a line of its log has the text."""
        return any(text in line for line in list(self.lines))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join(PATIENCE_S)


class Switch:
    """An address whose connections lead to one port, and after `lead_to` to another one."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def lead_to(self, target: int) -> None:
        """End all connections; new ones lead to this port."""
        self._target = target
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self._listener.close()
        self.lead_to(0)


def wait_for_record(port: int, value: bytes) -> None:
    """Wait until the broker at the port has the record."""
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])

    def has_arrived() -> bool:
        message = consumer.poll(0.5)
        return message is not None and not message.error() and message.value() == value

    try:
        wait_until(has_arrived, timeout_s=PATIENCE_S, what=f"record {value!r}")
    finally:
        consumer.close()


def advertising(port: int) -> dict[str, str]:
    return {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_client_learns_that_its_broker_belongs_to_another_cluster(is_checked: bool, tmp_path: Path) -> None:
    first_port, second_port = free_port(), free_port()
    with ExitStack() as stack:
        switch = Switch(first_port)
        stack.callback(switch.close)
        told = advertising(switch.port)
        stack.enter_context(BarnabasServer(tmp_path / "first", port=first_port, properties=told))
        stack.enter_context(BarnabasServer(tmp_path / "second", port=second_port, properties=told))
        producer = ConsoleProducer(
            f"127.0.0.1:{switch.port}", f"metadata.cluster.check.enable={str(is_checked).lower()}"
        )
        stack.callback(producer.end)
        producer.send("one")
        wait_for_record(switch.port, b"one")
        switch.lead_to(second_port)
        producer.send("two")
        wait_for_record(switch.port, b"two")
        assert producer.has_logged(MISMATCH) == is_checked, producer.lines[-20:]
