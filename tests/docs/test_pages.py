"""The commands and programs of the documentation run as they are written."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import in_one_test
from tests.docs.page import DOCS, blocks_of, script_of
from tests.foreign_tools import cache_dir, cache_entry, run_checked
from tests.server_process import free_port
from typer.main import get_command

from barnabas.tools.cli import coordinator, start
from barnabas.tools.cli.app import app

TIMEOUT_SECONDS = 300
USUAL_PORTS = ("9092", "9404", "8080", "8081")
PAGES = {
    "quick-start.md": "N39463",
    "tutorials/first-test.md": "2 passed",
    "tutorials/failover-test.md": "1 passed",
    "tutorials/topic-to-iceberg.md": "1010 510555",
    "how-to/ci.md": "1 passed",
    "how-to/backup.md": "2 of 2 backups",
    "how-to/users-tls-acls.md": "one coffee",
    "how-to/monitoring.md": "kafka_server_replicamanager_partitioncount",
    "how-to/troubleshooting.md": "orders",
}
"""Pages that run as a whole, and a text of their output."""
TESTED_ELSEWHERE = {
    "adding-an-api.md": "tests/clients/test_adding_an_api.py",
    "arrow.md": "tests/arrow/test_tutorial.py",
    "share-groups.md": "tests/tools/cli/test_share_group_cli.py",
    "streams-groups.md": "tests/tools/cli/test_streams_group_cli.py",
    "simulation.md": "tests/simulation/test_documentation.py",
    "testing.md": "tests/testing/test_documentation.py",
    "migrating-tests.md": "tests/testing/test_migration_page.py",
    "kraft.md": "tests/compat/test_kraft.py",
    "security.md": "tests/server/security/test_authorizer_of_a_package.py",
    **dict.fromkeys(
        (
            *("clients.md", "cluster.md", "compaction.md", "console.md", "contributing/debugging.md"),
            *("how-to/service.md", "metrics.md", "quotas.md", "schema-registry.md", "tables.md"),
            "transactions.md",
        ),
        "tests/docs/test_commands.py",
    ),
}
PARSED = {
    "spark.md": "fragments, and formats whose jars are not installed",
    "contributing/profiling.md": "measurements that take minutes, and tools that need rights of the administrator",
}
"""Pages whose commands and programs are parsed only, and why they are not run."""
ROOT = DOCS.parent
_COMMAND = re.compile(r"(?:(?<=\n)|^|(?<=\| ))barnabas [a-z-][^\n|&;>]*")


def run_page(page: str, folder: Path, ports: dict[str, int]) -> str:
    """Run a page in an empty folder and return its output; fails with the output if a command fails."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BARNABAS_BOOTSTRAP_SERVER": f"127.0.0.1:{ports['9092']}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        ["bash", "-c", script_of(page, ports)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        _end_session(process.pid)
        output, _ = process.communicate()
        pytest.fail(f"{page} took longer than {TIMEOUT_SECONDS} s:\n{output}")
    finally:
        _end_session(process.pid)
    assert process.returncode == 0, output
    return output


def _end_session(leader: int) -> None:
    """End what the page started and did not stop: the jobs of a shell have process groups of their own."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended since the listing
        if int(fields[3]) == leader:
            os.kill(int(entry.parent.name), signal.SIGKILL)


pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="ends leftover processes by /proc")


@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs(page: str, tmp_path: Path) -> None:
    output = run_page(page, tmp_path, {usual: free_port() for usual in USUAL_PORTS})
    assert PAGES[page] in output, output


@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
def test_the_tutorial_of_a_cluster(tmp_path: Path) -> None:
    first, second, third = _three_ports_in_a_row()
    ports = {"9092": first, "9093": second, "9094": third}
    try:
        output = run_page("tutorials/first-cluster.md", tmp_path, ports)
    finally:
        subprocess.run(
            [sys.executable, "-m", "barnabas.tools.cli", "cluster", "stop", "--data", str(tmp_path / "cluster")],
            check=False,
        )
    assert "cem three juices" in output, output


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
def test_the_tutorial_of_a_stream(tmp_path: Path) -> None:
    output = run_page("tutorials/stream-to-parquet.md", tmp_path, {usual: free_port() for usual in USUAL_PORTS})
    assert "1000 500500" in output, output
    assert "1010 510555" in output, output


def protobuf_of_pyspark() -> Path:
    """Return a folder with a protobuf that accepts the messages of PySpark 4.3; the tests' other packages need an older
    one.
    """
    with cache_entry(cache_dir("pyspark"), "protobuf") as (entry, scratch):
        if scratch is not None:
            options = ["--quiet", "--no-deps", "--target", str(scratch)]
            run_checked([sys.executable, "-m", "pip", "install", *options, "protobuf>=6.33.5,<7"])
    return entry


@pytest.mark.java
@pytest.mark.nightly
@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
def test_the_tutorial_of_a_recovered_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(protobuf_of_pyspark()))
    page = "tutorials/state-from-a-compacted-topic.md"
    output = run_page(page, tmp_path, {usual: free_port() for usual in USUAL_PORTS})
    assert "totals of 7 aircraft: 1000 flights, 500500 minutes" in output, output
    assert "totals of 7 aircraft: 1010 flights, 510555 minutes" in output, output


def _three_ports_in_a_row() -> tuple[int, int, int]:
    """Return ports that are free now, as is the port before them, which the coordinator uses."""
    for _ in range(100):
        first = free_port()
        try:
            with contextlib.ExitStack() as sockets:
                for port in range(first - 1, first + 3):
                    sockets.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return first, first + 1, first + 2
    raise AssertionError("no four free ports in a row")


def _commands() -> list[tuple[str, str]]:
    """Return the page and the text of each `barnabas` command of all pages, continued lines joined."""
    found = []
    for path in sorted(DOCS.rglob("*.md")):
        page = str(path.relative_to(DOCS))
        for block in blocks_of(page):
            if block.language == "sh":
                text = block.code.replace("\\\n", " ")
                found += [(page, match[0]) for match in _COMMAND.finditer(text)]
    return found


@in_one_test(("page", "command"), _commands())
def test_the_options_of_a_command_exist(page: str, command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    if "…" in words:
        words.remove("…")
    if words[0] == "start":
        start.parser().parse_args(words[1:])
        return
    if words[0] == "coordinator":
        coordinator.parser().parse_args(words[1:])
        return
    current, context, name, rest = get_command(app), None, "barnabas", words
    while True:
        context = current.make_context(name, rest, parent=context)
        if not hasattr(current, "resolve_command"):
            break
        name, current, rest = current.resolve_command(context, [*context._protected_args, *context.args])
        context.invoked_subcommand = name


def test_the_programs_of_parsed_pages_compile() -> None:
    for page in PARSED:
        for block in blocks_of(page):
            if block.language == "python":
                compile(block.code, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_every_page_with_commands_is_run_by_a_test() -> None:
    runnable = {
        str(path.relative_to(DOCS))
        for path in DOCS.rglob("*.md")
        if any(block.language in ("sh", "python") for block in blocks_of(str(path.relative_to(DOCS))))
    }
    run_above = {
        "tutorials/first-cluster.md",
        "tutorials/state-from-a-compacted-topic.md",
        "tutorials/stream-to-parquet.md",
    }
    assert runnable - PAGES.keys() - TESTED_ELSEWHERE.keys() - PARSED.keys() == run_above
    assert all((ROOT / test).is_file() for test in TESTED_ELSEWHERE.values())
    assert all(re.search(r"^```", (DOCS / page).read_text(), re.MULTILINE) for page in TESTED_ELSEWHERE)
