"""`barnabas table follow` as a command: errors in one line, signals, metrics."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.server_process import free_port, wait_until
from tests.tools.cli.running import Run

from barnabas import Broker

pytest.importorskip("pyarrow", reason="pip install 'barnabas[arrow]'")


def rows_of(folder: Path) -> int:
    from barnabas.table.parquet_table import read_manifest

    try:
        return sum(rows for rows, _ in read_manifest(folder).files.values())
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no topics given: name topics, or use --pattern"),
        (("none",), "topic none does not exist"),
        (("t", "--value", "xml"), "--value: invalid format 'xml'"),
        (("t", "--value", "registry"), "--value registry requires --schema-registry"),
        (("t", "--value", "avro:/no/such.avsc"), "/no/such.avsc"),
        (("t", "--partition-by", "day(value)"), "partition by day(value): the column is not a time"),
        (("t", "--partition-by", "x"), "partition by 'x': the table has no such column"),
        (("t", "--file-size", "x"), "--file-size: invalid size 'x'"),
        (("t", "--on-error", "ignore"), "--on-error: invalid value 'ignore'"),
        (("t", "--on-data-loss", "x"), "--on-data-loss: invalid value 'x'"),
        (("t", "--start", "soon"), "start: invalid value 'soon'"),
        (("--pattern", "("), "pattern '('"),
        (("--pattern", "t.*", "--upsert"), "upsert requires one topic"),
        (("t", "--from-folder", "/no/such"), "/no/such"),
    ],
)
def test_errors_are_one_line(
    broker: Broker, run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    if not broker.has_topic("t"):
        broker.create_topic("t", 1)
        broker.produce("t", [b"v"])
    status, _, err = run("table", "follow", *arguments, "--to", f"parquet://{tmp_path}/t", "--once")
    assert status in (1, 2)
    assert message in re.sub(r"[\s│]+", " ", err), err
    assert "Traceback" not in err and (arguments == () or len(err.splitlines()) == 1)


def test_json_values_by_a_schema(broker: Broker, run: Run, tmp_path: Path) -> None:
    broker.create_topic("orders", 1)
    broker.produce("orders", [json.dumps({"id": 1, "price": "2.50"})])
    fields = [{"name": "id", "type": "int"}, {"name": "price", "type": ["null", "string"]}]
    (tmp_path / "orders.json").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    given = ("--value", f"json:{tmp_path}/orders.json", "--to", f"parquet://{tmp_path}/t", "--once")
    status, _, err = run("table", "follow", "orders", *given)
    assert (status, err) == (0, f"1 rows written to parquet://{tmp_path}/t\n")
    import pyarrow.parquet as pq

    (path,) = (tmp_path / "t").glob("*.parquet")
    assert pq.read_table(path).to_pylist()[0]["price"] == "2.50"


def test_a_unit_runs_the_same_follower(run: Run, broker: Broker) -> None:
    status, out, err = run("table", "unit", "--", "a topic", "--to", "parquet:///tmp/50%", "--value", "json")
    assert status == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("ExecStart=")]
    expected = f'table follow "a topic" --to parquet:///tmp/50%% --value json --bootstrap-server {broker.bootstrap}'
    assert line.endswith(expected)
    assert "SuccessExitStatus=143" in out
    status, out, err = run("table", "unit", "--", "t", "--to", "parquet:///tmp/t", "--prefix", "")
    assert status == 0, err
    assert ' --prefix "" ' in out
    for wrong in (("t",), ("t", "--to", "x", "--once"), ("t", "--to", "x", "--no-such")):
        assert run("table", "unit", "--", *wrong)[0] == 2


@contextmanager
def following(broker: Broker, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "barnabas.tools.cli", "table", "follow", *arguments, "-b", broker.bootstrap]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.verify)])
def test_a_signal_ends_with_a_commit(broker: Broker, tmp_path: Path, number: signal.Signals) -> None:
    topic = f"signal-{number.name}"
    broker.create_topic(topic, 1)
    broker.produce(topic, [b"v"])
    to, port = tmp_path / "t", free_port()
    with following(broker, topic, "--to", f"parquet://{to}", "--metrics-port", str(port)) as process:
        wait_until(lambda: rows_of(to) == 1, timeout_s=60, what="the first record is in the table")
        began = time.monotonic()
        broker.produce(topic, [b"w"])
        wait_until(lambda: rows_of(to) == 2, timeout_s=60, what="the second record is in the table")
        assert time.monotonic() - began < 5, "by default a record is in the table after five seconds at most"

        def metrics() -> str:
            with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                return str(response.read().decode())

        wait_until(lambda: "barnabas_table_rows_total 2.0" in metrics(), timeout_s=10, what="the commit is counted")
        text = metrics()
        assert f'barnabas_table_lag_records{{partition="0",topic="{topic}"}}' in text
        assert 'barnabas_table_commit_seconds_bucket{le="+Inf"} 2.0' in text
        process.send_signal(number)
        assert process.wait(30) == 128 + number


@pytest.mark.verify
def test_a_follower_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("t", 2)
        broker.produce("t", [b"v"])
        to = tmp_path / "t"
        with following(broker, "t", "--to", f"parquet://{to}", "--interval", "0.2") as process:
            wait_until(lambda: rows_of(to) == 1, timeout_s=60, what="the first record is in the table")
            broker.restart()
            for _ in range(20):
                broker.produce("t", [b"w"])
            wait_until(lambda: rows_of(to) == 21, timeout_s=90, what="the records after the restart are in the table")
            assert process.poll() is None
