"""`barnabas start` as a process: what it prints, whom it tells what address, how it ends, what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.server_process import ServerProcess, free_port, wait_until

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.tools.cli import main

READY_S = 60
ERROR_STATUS, USAGE_STATUS = 1, 2


class Started:
    """One `barnabas start`, from its command line to its exit status."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.data = folder / "data"
        self.log = folder / f"log-{len(list(folder.iterdir()))}"
        command = [sys.executable, "-m", "barnabas.tools.cli", "start", *arguments]
        self.process = ServerProcess(command, self.log)

    def ready(self) -> Started:
        self.process.wait_ready(lambda: "\nready " in "\n" + self.output, timeout_s=READY_S, what="ready")
        return self

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def line(self, pattern: str) -> re.Match[str]:
        """The one line of output that matches."""
        (found,) = [match for line in self.output.splitlines() if (match := re.fullmatch(pattern, line))]
        return found

    @property
    def port(self) -> int:
        return int(self.line(r"listening PLAINTEXT://127\.0\.0\.1:(\d+)")[1])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        return self.process.end(number)

    @property
    def is_marked_clean(self) -> bool:
        return (self.data / ".kafka_cleanshutdown").exists()


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers that do not outlive the test."""
    started: list[Started] = []

    def begin(*arguments: str) -> Started:
        started.append(Started(tmp_path, *arguments))
        return started[-1]

    yield begin
    for one in started:
        one.end(signal.SIGKILL)


@pytest.fixture
def plain(start: Start, tmp_path: Path) -> Callable[..., Started]:
    """A broker on a free port with its data in `data`."""
    return lambda *more: start("--port", "0", "--data", str(tmp_path / "data"), *more)


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux has a way to say this")
def test_it_takes_a_processor_from_nobody_and_is_not_nice(plain: Callable[..., Started]) -> None:
    pid = plain().ready().process.pid
    inherited = os.sched_getscheduler(0)
    expected = os.SCHED_BATCH if inherited == os.SCHED_OTHER else inherited
    threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    assert {os.sched_getscheduler(thread) for thread in threads} == {expected}
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)


async def addresses(port: int) -> set[tuple[str, int]]:
    """Where the broker at a port sends its clients; Metadata and DescribeCluster agree."""
    connection = await BrokerConnection.open("127.0.0.1", port, ConnectionOptions())
    metadata = await connection.send(MetadataRequest(topics=[]))
    cluster = await connection.send(DescribeClusterRequest())
    connection.close()
    found = {(broker.host, broker.port) for broker in metadata.brokers}
    assert {(broker.host, broker.port) for broker in cluster.brokers} == found
    return found


async def test_what_is_printed_is_what_clients_need(plain: Callable[..., Started]) -> None:
    broker = plain("--override", "health.port=0", "--topic", "orders:3").ready()
    assert broker.port > 0
    assert await addresses(broker.port) == {("127.0.0.1", broker.port)}
    url = broker.line(r"health (http://\S+)")[1]
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert json.load(answer)["ready"] is True
    ready = broker.line(r"ready broker\.id=(\d+) cluster\.id=(\S{22})")
    assert f"cluster.id={ready[2]}" in (broker.data / "meta.properties").read_text()
    assert {path.name for path in broker.data.glob("orders-*")} == {"orders-0", "orders-1", "orders-2"}
    assert "Traceback" not in broker.output


async def test_clients_hear_the_address_of_the_listener_they_came_in_on(start: Start, tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"""broker.id=3
listeners=INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}
advertised.listeners=INSIDE://broker.internal:9094,OUTSIDE://kafka.example.org:443
listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT
inter.broker.listener.name=INSIDE
log.dirs={tmp_path / "data"}
"""
    )
    broker = start(str(properties)).ready()
    assert await addresses(inside) == {("broker.internal", 9094)}
    assert await addresses(outside) == {("kafka.example.org", 443)}
    broker.line(r"listening INSIDE://broker\.internal:9094")
    broker.line(r"listening OUTSIDE://kafka\.example\.org:443")
    broker.line(r"ready broker\.id=3 .*")


async def test_a_file_written_for_zookeeper(start: Start, tmp_path: Path) -> None:
    nobody = free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"""# The Apache Kafka of old
broker.id=0
listeners=PLAINTEXT://127.0.0.1:{free_port()}
num.network.threads=3
num.io.threads=8
log.dirs={tmp_path / "data"}
num.partitions=4
offsets.topic.replication.factor=1
log.retention.hours=168
zookeeper.connect=127.0.0.1:{nobody}
zookeeper.connection.timeout.ms=100
group.initial.rebalance.delay.ms=0
"""
    )
    broker = start(str(properties))
    assert broker.process.wait(READY_S) == 1
    broker.line(
        rf"barnabas start: no response from ZooKeeper at 127\.0\.0\.1:{nobody} within 100 ms \(zookeeper\.connect; .*\)"
    )


async def test_a_file_is_read_as_java_reads_it(start: Start, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_bytes(
        f"# gr\xfcn\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n".encode("latin-1")
    )
    assert start(str(properties)).ready().end() == 0
    properties.write_text("broker.id=\\u12")
    broker = start(str(properties))
    assert broker.process.wait(READY_S) == 2
    broker.line(rf"barnabas start: {properties}: Malformed .*")


def test_what_the_system_says_is_told_without_its_number(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    broker = start("--port", "0", "--data", str(tmp_path / "file"))
    assert broker.process.wait(READY_S) == 1
    broker.line(r".* ERROR barnabas\.storage: log directory (.*) is offline: \1: File exists")
    keyless = start("--listener", "SSL://127.0.0.1:0", "--override", f"ssl.keystore.location={tmp_path / 'none'}")
    assert keyless.process.wait(READY_S) == 1
    for one in (broker, keyless):
        *_, last_of_log, last = one.output.splitlines()
        reason = last.removeprefix("barnabas start: ")
        assert last_of_log.endswith(f" ERROR barnabas.broker: the broker did not start: {reason}")
    keyless.line(rf"barnabas start: .* listener SSL: {tmp_path / 'none'}: No such file or directory")
    assert "Errno" not in broker.output + keyless.output


async def test_a_file_written_for_kraft(start: Start, tmp_path: Path) -> None:
    port, controller = free_port(), free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"""process.roles=broker,controller
node.id=5
controller.quorum.bootstrap.servers=localhost:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
log.dirs={tmp_path / "data"}
"""
    )
    broker = start(str(properties)).ready()
    assert await addresses(port) == {("localhost", port)}
    line = broker.line(r".* WARNING barnabas\.broker: Ignored, they concern a KRaft quorum: (.*)")
    assert line[1].split(", ") == [
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "process.roles",
    ]
    assert "CONTROLLER://" not in broker.output
    with pytest.raises(Exception, match="refused"):
        await BrokerConnection.open("127.0.0.1", controller, ConnectionOptions())
    broker.line(r"ready broker\.id=5 .*")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_end(plain: Callable[..., Started], number: signal.Signals) -> None:
    broker = plain().ready()
    cluster = broker.line(r"ready .* cluster\.id=(\S+)")[1]
    assert not broker.is_marked_clean
    assert broker.end(number) == 0
    assert broker.is_marked_clean
    assert "Traceback" not in broker.output
    last = broker.output.splitlines()[-1]
    assert re.fullmatch(rf"\S+ INFO barnabas\.broker: stopped cleanly in \d+\.\d+ s after {number.name}", last)
    again = plain().ready()
    assert again.line(r"ready .* cluster\.id=(\S+)")[1] == cluster
    assert not again.is_marked_clean


async def test_last_line_names_the_failure_of_the_only_log_directory(
    plain: Callable[..., Started], tmp_path: Path
) -> None:
    broker = plain("--override", f"metadata.store.path={tmp_path / 'store'}").ready()
    shutil.rmtree(broker.data)
    connection = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    with contextlib.suppress(KafkaError, OSError):
        await connection.send(CreateTopicsRequest(topics=[topic]))
    connection.close()
    assert broker.process.wait(READY_S) == 1
    reason = rf"no log directory is left: {broker.data}: \S+: No such file or directory"
    assert re.fullmatch(rf"\S+ ERROR barnabas\.broker: the broker ended: {reason}", broker.output.splitlines()[-1])


def test_a_terminal_that_is_closed_ends_nothing(plain: Callable[..., Started]) -> None:
    broker = plain().ready()
    os.kill(broker.process.pid, signal.SIGHUP)
    assert broker.end() == 0
    assert broker.is_marked_clean
    assert "Traceback" not in broker.output


def test_sigusr1_logs_the_stacks_of_threads_and_tasks(plain: Callable[..., Started]) -> None:
    broker = plain().ready()
    os.kill(broker.process.pid, signal.SIGUSR1)
    wait_until(lambda: "tasks in this dump" in broker.output, timeout_s=READY_S, what="a dump of the stacks")
    time = r"\S+ INFO barnabas\.broker: "
    broker.line(time + r"stack of thread MainThread: .*server/__main__\.py:\d+ run > .*")
    # `main` waits for a signal or a failure: the frames lead from its coroutine to the innermost await.
    broker.line(time + r"stack of task \S+: server/__main__\.py:\d+ _serve > asyncio/tasks\.py:\d+ wait > .*")
    assert broker.end() == 0


BUSY_LOOP = """
import sys, time
from pathlib import Path
from barnabas.server.__main__ import run
from barnabas.server.config.broker_config import BrokerConfig

class Busy:
    async def start(self, server):
        Path(sys.argv[1], "busy").touch()
        while not Path(sys.argv[1], "end").exists():
            time.sleep(0.01)
        return "released"

    async def stop(self): ...

properties = {"log.dirs": sys.argv[1] + "/data", "listeners": "PLAINTEXT://127.0.0.1:" + sys.argv[2]}
sys.exit(run(BrokerConfig.from_properties(properties), companion=Busy()))
"""


def test_sigusr1_shows_a_callback_that_holds_the_loop(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = ServerProcess([sys.executable, "-c", BUSY_LOOP, str(tmp_path), str(free_port())], log)
    try:
        wait_until((tmp_path / "busy").exists, timeout_s=READY_S, what="a busy loop")
        os.kill(process.pid, signal.SIGUSR1)
        wait_until(lambda: "tasks in this dump" in log.read_text(), timeout_s=READY_S, what="a dump of the stacks")
        assert re.search(r"stack of thread MainThread: .* _serve > .*<string>:\d+ start\b", log.read_text())
    finally:
        (tmp_path / "end").touch()
        assert process.end() == 0


def test_the_log_tells_of_the_start(plain: Callable[..., Started]) -> None:
    broker = plain("--topic", "orders:3").ready()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    broker.line(time + r" INFO barnabas\.broker: Barnabas \S+ starts on Python \S+ with (no )?compiled code")
    broker.line(rf"{time} INFO barnabas\.broker: PLAINTEXT listens on 127\.0\.0\.1:{broker.port} \(PLAINTEXT\)")
    broker.line(rf"{time} INFO barnabas\.broker: {broker.data}: new log directory")
    broker.line(time + r" INFO barnabas\.broker: started in \d\.\d{3} s")
    assert broker.end() == 0
    again = plain().ready()
    again.line(rf"{time} INFO barnabas\.broker: {broker.data}: 3 logs, loaded after a clean stop")


async def test_requests_are_logged_at_debug(plain: Callable[..., Started]) -> None:
    broker = plain("--log-level", "debug").ready()
    await addresses(broker.port)
    broker.line(r".* DEBUG barnabas\.apis: Metadata v\d+ from 127\.0\.0\.1 client\.id=.*: answered in \d+\.\d{3} ms")
    assert broker.end() == 0


def test_a_log_for_machines_in_a_file(plain: Callable[..., Started], tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    broker = plain("--log-format", "json", "--log-file", str(log), "--log-level", "WARNING", "--override", "a\nb=c")
    broker.ready()
    assert broker.end() == 0
    (facts,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert facts.keys() == {"time", "level", "logger", "message"}
    assert facts["message"] == "Unknown configuration keys, kept without effect: a\\nb"
    assert "Unknown" not in broker.output


def test_kill_leaves_no_marker_and_the_next_start_is_none_the_worse(plain: Callable[..., Started]) -> None:
    broker = plain("--topic", "t").ready()
    broker.end(signal.SIGKILL)
    assert not broker.is_marked_clean
    assert plain().ready().end() == 0
    assert (broker.data / "t-0").is_dir()


def test_a_second_broker_on_the_same_folder(plain: Callable[..., Started]) -> None:
    first = plain().ready()
    second = plain()
    assert second.process.wait(READY_S) == ERROR_STATUS
    assert second.output.splitlines()[-1] == f"barnabas start: {first.data}: another broker is using this log directory"
    assert first.end() == 0
    assert plain().ready().end() == 0


def test_a_port_that_is_taken(start: Start, plain: Callable[..., Started], tmp_path: Path) -> None:
    first = plain().ready()
    second = start("--port", str(first.port), "--data", str(tmp_path / "other"))
    assert second.process.wait(READY_S) == ERROR_STATUS
    reason = f"cannot listen on 127.0.0.1:{first.port}: address already in use"
    *_, last_of_log, last = second.output.splitlines()
    assert last == f"barnabas start: {reason}"
    assert " ERROR barnabas.broker: the broker did not start: " in last_of_log
    assert "Traceback" not in second.output


@pytest.mark.parametrize("how", ["a file in the way", "no permission"])
def test_a_folder_that_cannot_be_written(start: Start, tmp_path: Path, how: str) -> None:
    place = tmp_path / "place"
    if how == "no permission":
        if os.geteuid() == 0:
            pytest.skip("root may write everywhere")
        place.mkdir(mode=0o500)
    else:
        place.write_text("")
    broker = start("--port", "0", "--data", str(place / "data"))
    assert broker.process.wait(READY_S) == ERROR_STATUS
    assert broker.output.splitlines()[-1] == f"barnabas start: every log directory has failed: {place / 'data'}"
    assert "Traceback" not in broker.output


def test_the_folder_of_another_cluster(plain: Callable[..., Started]) -> None:
    broker = plain().ready()
    cluster = broker.line(r"ready .* cluster\.id=(\S+)")[1]
    assert broker.end() == 0
    identity = broker.data / "meta.properties"
    identity.write_text(identity.read_text().replace(cluster, "AAAAAAAAAAAAAAAAAAAAAA"))
    other = plain()
    assert other.process.wait(READY_S) == ERROR_STATUS
    for word in ("cluster", cluster, "AAAAAAAAAAAAAAAAAAAAAA", str(broker.data)):
        assert word in other.output
    assert "Traceback" not in other.output


def test_the_folder_of_another_broker(plain: Callable[..., Started]) -> None:
    broker = plain("--override", "broker.id=4").ready()
    assert broker.end() == 0
    other = plain("--override", "broker.id=5")
    assert other.process.wait(READY_S) == ERROR_STATUS
    assert "broker ids: 5 in the configuration, 4 in" in other.output
    # Who does not say which broker he is, is the one who was here before.
    plain().ready().line(r"ready broker\.id=4 .*")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--override", "num.partitions=many"], "num.partitions"),
        (["--override", "nonsense"], "KEY=VALUE"),
        (["--topic", "t:none"], "--topic t:none"),
        (["--listener", "nonsense"], "listeners"),
        (["no-such-file.properties"], "no-such-file.properties"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_command_lines_that_make_no_sense(
    arguments: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    try:
        status = main(["start", "--port", "0", "--data", str(data), *arguments])
    except SystemExit as end:
        status = int(end.code or 0)
    assert status == USAGE_STATUS
    assert said in capfd.readouterr().err
    assert not data.exists()


def test_a_topic_that_cannot_be_made(plain: Callable[..., Started]) -> None:
    broker = plain("--topic", "a b")
    assert broker.process.wait(READY_S) == ERROR_STATUS
    assert "INVALID_TOPIC_EXCEPTION" in broker.output
    assert broker.is_marked_clean


def test_sigterm_ends_a_start_that_waits_for_controllers(start: Start, tmp_path: Path) -> None:
    overrides = {
        "process.roles": "broker",
        "node.id": "2",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{free_port()}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    settings = [word for key, value in overrides.items() for word in ("--override", f"{key}={value}")]
    broker = start("--data", str(tmp_path / "data"), *settings)
    wait_until(lambda: " starts on Python " in broker.output, timeout_s=READY_S, what="the first line")
    assert broker.end() == 0
    assert "stopped because of SIGTERM, before the start was complete" in broker.output
    assert "Traceback" not in broker.output


def test_a_start_after_a_crash_is_distinguishable(plain: Callable[..., Started]) -> None:
    first = plain("--topic", "t:2").ready()
    first.line(rf".* INFO barnabas\.broker: {first.data}: new log directory")
    first.end(signal.SIGKILL)
    second = plain().ready()
    second.line(rf".* INFO barnabas\.broker: {first.data}: 2 logs, recovered after an unclean stop")
    assert second.end() == 0
    plain().ready().line(rf".* INFO barnabas\.broker: {first.data}: 2 logs, loaded after a clean stop")


FATAL = """
import asyncio, sys
from barnabas.server.__main__ import run
from barnabas.server.config.broker_config import BrokerConfig

class Fatal:
    async def start(self, server):
        asyncio.get_running_loop().call_later(0.1, server._fail, OSError(28, "No space left on device", "/metadata"))
        return "console"

    async def stop(self): ...

properties = {"log.dirs": sys.argv[1] + "/data", "listeners": "PLAINTEXT://127.0.0.1:0"}
sys.exit(run(BrokerConfig.from_properties(properties), companion=Fatal()))
"""


def test_last_line_names_an_error_after_which_the_metadata_cannot_be_followed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = ServerProcess([sys.executable, "-c", FATAL, str(tmp_path)], log)
    assert process.wait(READY_S) == ERROR_STATUS
    last = log.read_text().splitlines()[-1]
    assert re.fullmatch(r"\S+ ERROR barnabas\.broker: the broker ended: /metadata: No space left on device", last), last


def test_last_lines_of_a_start_on_a_full_disk(start: Start, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=65536", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(1024)):
                continue
        broker = start("--port", "0", "--data", str(disk / "data"))
        assert broker.process.wait(READY_S) == ERROR_STATUS
        *_, last_of_log, last = broker.output.splitlines()
        assert re.fullmatch(r"barnabas start: .*(No space left on device|database or disk is full)", last)
        assert last_of_log.endswith(
            f" ERROR barnabas.broker: the broker did not start: {last.removeprefix('barnabas start: ')}"
        )
        assert "Traceback" not in broker.output
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
