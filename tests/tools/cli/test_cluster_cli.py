"""`barnabas cluster`: processes that are found again, and no others; a cluster that outlives its brokers."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.server_process import ServerProcess, free_port, wait_until
from tests.testing.test_cluster import Numbers, partitions_told, read_all
from tests.tools.cli.running import Run, run_command

from barnabas.common.properties import parse_properties
from barnabas.tools.cli import main
from barnabas.tools.cli.local_cluster import LocalCluster
from barnabas.tools.cli.local_process import BARNABAS, LocalClusterError, LocalProcess

DEADLINE_S = 60


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a cluster may be made; nothing of it outlives the test."""
    folder = tmp_path / "cluster"
    yield folder
    if (folder / "cluster.json").exists():
        for member in LocalCluster.load(folder).members:
            member.send(signal.SIGKILL)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], folder: Path) -> Run:
    """Runs a command of `barnabas cluster`; gives its status, output and errors."""

    def command(name: str, *arguments: str) -> tuple[int, str, str]:
        return run_command(capfd, ["cluster", name, *arguments, "--data", str(folder)])

    return command


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def bootstrap_of(started: tuple[int, str, str]) -> str:
    status, out, err = started
    assert status == 0, err
    return str(json.loads(out)["bootstrap"])


def states(run: Run) -> dict[str, str]:
    _, out, _ = run("status", "--json")
    return {row["process"]: row["state"] for row in json.loads(out)}


def test_three_brokers_start_spread_their_leaders_and_stop(run: Run, folder: Path) -> None:
    bootstrap = bootstrap_of(run("start", "-n", "3", "--port", "0", "--config", "num.partitions=6", "--json"))
    assert states(run) == dict.fromkeys(("coordinator", "broker 1", "broker 2", "broker 3"), "running")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (created,) = admin.create_topics([NewTopic("orders")]).values()
    created.result(DEADLINE_S)

    def spread() -> bool:
        topic = admin.list_topics("orders", timeout=DEADLINE_S).topics["orders"]
        return Counter(partition.leader for partition in topic.partitions.values()) == {1: 2, 2: 2, 3: 2}

    def shown() -> bool:
        _, out, _ = run("status", "--json")
        return [row["leads"] for row in json.loads(out)] == [None, 2, 2, 2]

    wait_until(spread, timeout_s=DEADLINE_S, what="each leads two")
    wait_until(shown, timeout_s=DEADLINE_S, what="status says that each leads two")
    assert run("start")[::2] == (1, "barnabas: the cluster is already running\n")
    assert run("start", "-n", "4")[2].startswith(f"barnabas: {folder} has a cluster of 3 brokers")
    assert run("start", "4")[2] == "barnabas: unknown number 4: 0 is the coordinator, brokers are 1 to 3\n"
    assert readable_by_others(folder) == []
    pids = [member.pid() for member in LocalCluster.load(folder).members]
    status, out, _ = run("stop")
    assert status == 0
    names = ("broker 1", "broker 2", "broker 3", "coordinator")
    assert out == "".join(f"stopped {name} (pid {pid})\n" for name, pid in zip(names, pids[1:] + pids[:1], strict=True))
    assert run("status")[0] == 1
    assert run("stop") == (0, "", "no process was running\n")
    assert run("kill", "2")[::2] == (1, "barnabas: broker 2 is not running\n")
    assert run("start", "1")[2].startswith("barnabas: a broker cannot start without the coordinator")


def readable_by_others(folder: Path) -> list[Path]:
    """Files and folders that another user could read if nothing above them were in the way."""
    return [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077 and path.name != "lock"]


def test_settings_are_for_their_owner_alone_also_in_a_folder_of_an_earlier_version(tmp_path: Path) -> None:
    os.umask(umask := os.umask(0))
    assert umask & 0o077 != 0o077, "the test needs a umask that lets others read"
    cluster = LocalCluster.create(tmp_path, 1, 0, {"ssl.keystore.password": "secret"})
    (tmp_path / "broker-1").mkdir(mode=0o755)
    for name in ("cluster.json", "broker-1/server.properties", "broker-1/output.log"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o644)
    cluster.save()
    (broker,) = cluster.brokers
    cluster.config["log.dirs"] = "/dev/null"  # it need not run
    cluster.start([broker])
    try:
        for path in (tmp_path / "cluster.json", broker.folder, broker.folder / "server.properties"):
            assert path.stat().st_mode & 0o077 == 0, path
        assert "secret" in (broker.folder / "server.properties").read_text()
    finally:
        broker.send(signal.SIGKILL)


@pytest.mark.verify
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", [1, 3])
def test_whoever_is_killed_the_others_go_on_and_it_comes_back(run: Run, victim: int) -> None:
    bootstrap = bootstrap_of(run("start", "--port", "0", "--json"))
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (created,) = admin.create_topics([NewTopic("orders", 6)]).values()
    created.result(DEADLINE_S)

    def in_sync(wanted: set[int]) -> bool:
        found = partitions_told(admin, "orders")
        return bool(found) and all(set(one.isrs) == wanted and one.leader in wanted for one in found)

    def await_in_sync(wanted: set[int]) -> None:
        wait_until(lambda: in_sync(wanted), timeout_s=DEADLINE_S, what=f"{wanted} lead and follow")

    await_in_sync({1, 2, 3})
    with Numbers(bootstrap, "orders") as load:
        load.grows()
        assert run("kill", str(victim))[0] == 0
        assert states(run)[f"broker {victim}"] == "down"
        await_in_sync({1, 2, 3} - {victim})
        load.grows()
        assert run("start", str(victim))[0] == 0
        await_in_sync({1, 2, 3})
        # Without the coordinator brokers go on with what they lead, and are its members again when it is back.
        assert run("kill", "0")[0] == 0
        load.grows()
        assert run("start")[0] == 0
        load.grows()
        await_in_sync({1, 2, 3})
    assert load.errors == []
    assert run("stop")[0] == 0
    assert run("start")[0] == 0
    assert sorted(read_all(bootstrap, "orders", len(load.acknowledged))) == sorted(load.acknowledged)


@pytest.mark.verify
def test_a_cluster_without_coordinator_stops(run: Run) -> None:
    bootstrap_of(run("start", "--port", "0", "--json"))
    assert run("kill", "0")[0] == 0
    status, out, err = run("stop")
    assert (status, out.count("stopped broker"), err) == (0, 3, "")


def test_what_cannot_be_had_is_said_before_anything_starts(run: Run, folder: Path) -> None:
    assert run("status")[2] == f"barnabas: {folder} contains no cluster; `barnabas cluster start` creates one\n"
    assert "contains no cluster" in run("stop")[2]
    assert run("start", "--config", "broker.id=7")[2].startswith("barnabas: --config broker.id: ")
    assert run("start", "--config", "num.partitions")[0] == 2
    status, _, err = run("start", "--port", "0", "--config", "num.partitions=none")
    assert status == 2
    assert "num.partitions" in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refusal = run("start", "--port", str(taken.getsockname()[1]))[2]
        # Whether the port before it is free is not in the hands of this test.
        assert re.match(r"barnabas: port \d+ of (broker 1|coordinator) is not available: ", refusal)
    assert run("start", "--port", "65535")[2].startswith("barnabas: ports 65534 to 65537 are invalid")
    assert [path.name for path in folder.iterdir()] == ["lock"]
    (folder / "letters.txt").touch()
    assert run("start")[2] == f"barnabas: {folder} is not empty and contains no cluster\n"


def test_one_command_at_a_time(run: Run, folder: Path) -> None:
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run("start")[2] == f"barnabas: another `barnabas cluster` command is running on {folder}\n"


def test_no_stranger_is_signalled(run: Run, folder: Path, stranger: subprocess.Popen[bytes]) -> None:
    folder.mkdir()
    cluster = LocalCluster(folder, [1, 2], {})
    cluster.save()
    broker = cluster.member(1)
    broker.folder.mkdir()
    pid_file = broker.folder / "pid"
    pid_file.write_text(str(stranger.pid))
    assert broker.pid() is None
    assert run("kill", "1")[2] == "barnabas: broker 1 is not running\n"
    with pid_file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for name in ("kill", "stop"):
            assert run(name, "1")[2] == (
                f"barnabas: {pid_file} contains {stranger.pid}, which is not a process of this cluster\n"
            )
        for nobody in ("who knows", "0", "-1", ""):
            pid_file.write_text(nobody)
            assert run("kill", "1")[2] == f"barnabas: {pid_file} is locked, but contains no process id\n"
    assert stranger.poll() is None


def test_settings_reach_brokers_as_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"ssl.principal.mapping.rules": r"RULE:^CN=(.*)\.x$/$1/L", "super.users": " User:é", "broker.rack": "a\nb"}
    monkeypatch.setattr(LocalProcess, "start", lambda *_: None)
    cluster = LocalCluster(tmp_path, [1, 2], given)
    cluster.start(cluster.brokers)
    written = parse_properties((tmp_path / "broker-1" / "server.properties").read_text())
    assert written == cluster.settings(cluster.brokers[0])
    assert given.items() <= written.items()


@pytest.mark.parametrize(
    "text", ['{"ports": [], "config": {}}', '{"ports": [1], "config": {}}', '{"ports": ["x", 2], "config": {}}', "[]"]
)
def test_a_folder_that_is_damaged_is_said_to_be(run: Run, folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "cluster.json").write_text(text)
    for command in ("start", "status", "stop"):
        status, _, err = run(command)
        assert status == 1
        assert "cluster.json cannot be read" in err
    (folder / "cluster.json").unlink()


def test_a_start_that_had_no_room_does_not_keep_the_next_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "cluster.json.new").write_text('{"ports":')
    LocalCluster.create(tmp_path, 1, 0, {}).save()
    assert len(LocalCluster.load(tmp_path).brokers) == 1
    with pytest.raises(LocalClusterError, match="is not empty and contains no cluster"):
        LocalCluster.create(tmp_path, 1, 0, {})


def test_a_process_that_does_not_start_says_why(tmp_path: Path) -> None:
    member = LocalProcess(1, "broker 1", tmp_path / "broker-1", free_port())
    member.start([*BARNABAS, "start", str(tmp_path / "missing.properties")])
    with pytest.raises(Exception, match=r"(?s)broker 1 did not start.*missing.properties"):
        wait_until(member.says_ready, timeout_s=DEADLINE_S, what="an end")
    assert member.pid() is None


def coordinator(folder: Path, port: int, *more: str) -> list[str]:
    command = [sys.executable, "-m", "barnabas.tools.cli", "coordinator"]
    return [*command, "--data", str(folder), "--listen", f"127.0.0.1:{port}", *more]


def test_a_process_that_cannot_even_say_why_is_told_of(tmp_path: Path) -> None:
    member = LocalProcess(1, "broker 1", tmp_path, 1)
    member.log.touch()
    member._process = subprocess.Popen(["true"])
    member._process.wait()
    with pytest.raises(LocalClusterError, match=r"did not start\n.*output.log is empty; its disk has \d+ MB left"):
        member.says_ready()


def test_a_coordinator_has_its_folder_alone_and_ends_when_asked(tmp_path: Path) -> None:
    port = free_port()
    first = ServerProcess(coordinator(tmp_path / "tree", port), tmp_path / "log")
    first.wait_ready(lambda: "ready" in first.log_tail(), timeout_s=DEADLINE_S, what="ready")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"ruok")
        assert connection.recv(4) == b"imok"
    second = subprocess.run(coordinator(tmp_path / "tree", 0), capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert str(tmp_path / "tree") in second.stderr
    assert readable_by_others(tmp_path / "tree") == []
    assert first.end() == 0


def test_a_coordinator_is_not_for_other_machines_unless_that_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["coordinator", "--data", os.devnull, "--listen", "0.0.0.0:0"]) == 2
    assert "--allow-remote" in capfd.readouterr().err
