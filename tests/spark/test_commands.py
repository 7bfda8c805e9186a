"""`barnabas spark …` as a person calls it, in this process and session."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.conftest import Cluster, read_log

from barnabas.arrow import client as spark_client
from barnabas.spark.progress import ProgressListener
from barnabas.tools.cli import main
from barnabas.tools.cli import spark as spark_commands

pytestmark = pytest.mark.timeout(280)


def run(*arguments: str) -> None:
    assert main(["spark", *arguments]) == 0


def test_compact_and_audit(spark: Any, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.broker.create_topic("t", 2)
    cluster.produce("t", [{"key": b"k%d" % (i % 10), "value": b"%d" % i} for i in range(500)])
    out = str(tmp_path / "out")
    run("compact", "--topic", "t", "--bootstrap-server", cluster.bootstrap, "--output", out, "--master", "local[2]")
    assert sorted(int(row["value"]) for row in read_log({"path": out})) == list(range(490, 500))
    capsys.readouterr()
    run("audit", "--path", f"{out}/t-*,{out}", "--json")
    rows = json.loads(capsys.readouterr().out)
    assert sum(row["records"] for row in rows) == 10 and sum(row["repeats"] for row in rows) == 0


def test_export_table_and_replay(spark: Any, cluster: Cluster, tmp_path: Path, capsys: Any) -> None:
    for topic in ("t", "again"):
        cluster.broker.create_topic(topic, 1)
    cluster.produce("t", [{"key": b"k%d" % (i % 10), "value": b"%d" % i} for i in range(300)])
    where, out = ("--bootstrap-server", cluster.bootstrap), tmp_path / "out"
    run("export", "--topic", "t", *where, "--output", str(out))
    assert "300 records written" in capsys.readouterr().err
    run("replay", "--input", str(out), "--topic", "again", *where, "--write-id", "w")
    table = ("table", "--topic", "again", *where, "--output", str(tmp_path / "table"))
    run(*table)
    run(*table, "--overwrite")
    found = spark.read.parquet(str(tmp_path / "table")).collect()
    assert {int(row.value) for row in found} == set(range(290, 300))


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "replay", "--topic", "t"]) == 2


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says that ends before Spark begins."""
    assert main(["spark", *arguments]) == 1
    return capsys.readouterr().err


def test_one_mistake_is_one_line_and_needs_no_spark(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_commands, "_session", lambda *arguments: pytest.fail("Spark was started"))
    cluster.broker.create_topic("t", 1)
    where, out = ("--bootstrap-server", cluster.bootstrap), str(tmp_path / "out")
    for job in ("compact", "table", "export"):
        said = refused(capsys, job, "--topic", "t,nope", *where, "--output", out)
        assert said == "barnabas: missing topics: nope\n"
    assert refused(capsys, "replay", "--input", "x", "--topic", "nope", *where) == "barnabas: missing topics: nope\n"
    said = refused(capsys, "audit", "--topic", "t", "--option", "startingOfsets=1", *where)
    assert said == "barnabas: unknown option startingOfsets; do you mean startingOffsets?\n"
    logs = tmp_path / "logs"
    (logs / "t-0").mkdir(parents=True)
    (logs / "t-0" / f"{0:020}.log").touch()
    for path, topic in ((f"{out}/none", "t"), (f"{logs}/t-*", "nope")):
        said = refused(capsys, "audit", "--path", path, "--topic", topic)
        assert said == f"barnabas: no partition directory such as topic-0 at {path}\n"
    said = refused(capsys, "audit", "--path", str(logs), "--option", "onCorupt=report")
    assert said == "barnabas: unknown option onCorupt; do you mean onCorrupt?\n"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").touch()
    for job in ("compact", "table", "audit"):
        said = refused(capsys, job, "--topic", "t", *where, "--output", out)
        assert said == f"barnabas: {out} exists; add --overwrite to replace it\n"
    monkeypatch.setattr(spark_client, "_FIRST_CONTACT_S", 0.2)
    said = refused(capsys, "audit", "--topic", "t", "--bootstrap-server", "127.0.0.1:1")
    assert said == "barnabas: cannot reach broker at 127.0.0.1:1: connection refused\n"


def test_of_two_tracebacks_the_reason_is_told() -> None:
    java = "Job aborted\norg.apache.PythonException: Traceback\n  File x\nValueError: no column\n\tat java"
    assert spark_commands.plain_error(RuntimeError(java)) == "no column"
    called = "An error occurred while calling o1.\n: org.X.SparkClassNotFoundException: [DATA_SOURCE] no delta\n\tat"
    assert spark_commands.plain_error(RuntimeError(called)) == "[DATA_SOURCE] no delta"
    assert spark_commands.plain_error(RuntimeError("[PATH_NOT_FOUND] there is no such path\nJVM stacktrace")) == (
        "[PATH_NOT_FOUND] there is no such path"
    )
    assert spark_commands.plain_error(RuntimeError()) == "RuntimeError"


def test_how_a_query_ended_is_told_by_its_name_in_a_line() -> None:
    said: list[str] = []
    listener = ProgressListener(said.append)
    failure = "org.apache.spark.SparkException: no worker\n\tat org.apache.spark.X.y(X.scala:1)"
    for query, exception in (
        (SimpleNamespace(id=1, name="flights"), failure),
        (SimpleNamespace(id=2, name=None), None),
    ):
        listener.onQueryStarted(query)
        listener.onQueryTerminated(SimpleNamespace(id=query.id, exception=exception))
    assert said == ["flights: started", "flights: failed: no worker", "2: started", "2: done"]


@pytest.mark.verify
def test_the_pipeline(tmp_path: Path, spark: Any) -> None:
    """In a process of its own: it ends its session."""
    import os
    import subprocess
    import sys

    from tests.foreign_tools import CHECKOUT

    env = {**os.environ, "PYTHONPATH": f"{CHECKOUT / '.src'}"}
    command = [
        sys.executable,
        "-c",
        "import sys; from barnabas.tools.cli import main; sys.exit(main())",
        "spark",
        "pipeline",
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=270, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "336,776 flights in Parquet" in done.stdout
    assert "the state of every aircraft in the topic is the sum of its flights" in done.stdout
    assert "336,776 flights in an Iceberg table, written without Spark" in done.stdout
