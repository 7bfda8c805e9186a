"""A follower that is to stop does not wait for the network: brokers, name servers, registries, dead letters."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.server_process import wait_until
from tests.table.conftest import location, produce, rows_of

from barnabas import Broker
from barnabas.arrow import Json, RegistryValues
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.table import FollowSettings, TableFollower, host, open_table
from barnabas.table.table_columns import ColumnSettings

WITHIN_S = 2.0


class Stop:
    """`is_stopping` of a follower in a thread, and the seconds from the signal to its end."""

    def __init__(self) -> None:
        self.is_set = threading.Event()
        self.failures: list[BaseException] = []

    @contextmanager
    def following(self, to: str, settings: FollowSettings) -> Iterator[None]:
        """Follow in a thread; after the block the follower is stopped and has to end soon."""

        def run() -> None:
            try:
                with open_table(to) as sink:
                    TableFollower(sink, settings, is_stopping=self.is_set.is_set).run()
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self.is_set.set()
            began = time.monotonic()
            thread.join(30)
        assert not thread.is_alive() and time.monotonic() - began < WITHIN_S
        assert self.failures == []


@contextmanager
def silent_server() -> Iterator[tuple[str, threading.Event]]:
    """The address of a server that accepts connections and never responds, and the event of the first connection."""
    accepted, kept = threading.Event(), list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            try:
                while True:
                    kept.append(server.accept()[0])
                    accepted.set()
            except OSError:
                return

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", accepted
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in kept:
                one.close()


def connecting_to(port: int) -> int:
    """The number of connections to that port that the server has not accepted: the state SYN_SENT."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)


def test_a_broker_that_does_not_respond(tmp_path: Path) -> None:
    with (
        silent_server() as (address, accepted),
        Stop().following(location("parquet", tmp_path), FollowSettings(address, ["t"])),
    ):
        assert accepted.wait(20)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of connections")
def test_a_broker_that_accepts_no_connection(tmp_path: Path) -> None:
    """Linux drops the first packet of a connection while the queue of the server is full."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(address)
            before = connecting_to(address[1])
            with Stop().following(location("parquet", tmp_path), FollowSettings(f"127.0.0.1:{address[1]}", ["t"])):
                wait_until(lambda: connecting_to(address[1]) > before, timeout_s=20, what="the connection hangs")
        finally:
            for one in waiting:
                one.close()


def test_a_registry_that_does_not_respond(broker: Broker, topic: str, tmp_path: Path) -> None:
    produce(broker, topic, [{"value": b"v"}])
    with silent_server() as (address, accepted):
        columns = ColumnSettings(value=RegistryValues(f"http://{address}"))
        settings = FollowSettings(broker.bootstrap, [topic], columns=columns)
        with Stop().following(location("parquet", tmp_path), settings):
            assert accepted.wait(20)


def test_dead_letters_that_are_not_acknowledged_are_not_committed(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, letters = location("parquet", tmp_path), f"{topic}.dead"
    broker.create_topic(letters, 1)
    produce(broker, topic, [{"value": b"{"}, {"value": b'{"n": 1}'}])
    columns = ColumnSettings(value=Json(pa.schema([("n", pa.int32())])), on_error="topic")
    settings = FollowSettings(broker.bootstrap, [topic], columns=columns, dead_letter_topic=letters)
    is_flushing, is_over = threading.Event(), threading.Event()

    def flush(self: Any) -> int:
        is_flushing.set()
        is_over.wait(30)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.table.dead_letters.DeadLetterWriter.flush", flush)
        try:
            with Stop().following(to, settings):
                assert is_flushing.wait(20)
        finally:
            is_over.set()
    with open_table(to) as sink:
        assert sink.load() is None
        follower = TableFollower(sink, settings, is_stopping=lambda: False)
        follower.run(once=True)
    assert [row["n"] for row in rows_of(to)] == [1]


def test_results_and_errors_of_a_call_are_passed_on() -> None:
    def fail() -> None:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")

    interrupts: list[int] = []
    call = partial(host.call_until, interrupt=lambda: interrupts.append(1))
    assert call(lambda: False, lambda: 7) == 7
    with pytest.raises(KafkaError, match="no"):
        call(lambda: False, fail)
    # A call that ends within the patience is not abandoned.
    assert call(lambda: True, lambda: time.sleep(0.2) or 7, patience_s=20.0) == 7
    assert interrupts == []
    is_over = threading.Event()
    with pytest.raises(host.StoppedError):
        call(lambda: True, lambda: is_over.wait(30))
    is_over.set()
    assert interrupts == [1]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.verify)])
def test_a_signal_ends_the_command_while_the_broker_is_silent(tmp_path: Path, number: signal.Signals) -> None:
    with silent_server() as (address, accepted):
        command = [sys.executable, "-m", "barnabas.tools.cli", "table", "follow", "t"]
        process = subprocess.Popen(
            [*command, "--to", f"parquet://{tmp_path}/t", "-b", address], stderr=subprocess.PIPE, text=True
        )
        with closing(process.stderr):  # type: ignore[type-var]
            try:
                assert accepted.wait(60)
                began = time.monotonic()
                process.send_signal(number)
                assert process.wait(30) == 128 + number
                assert time.monotonic() - began < WITHIN_S
                assert process.stderr is not None and process.stderr.read() == ""
            finally:
                process.kill()
                process.wait()
