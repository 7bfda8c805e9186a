"""The `barnabas` command against a real broker: pipes, tables, JSON, exit statuses."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.tools.cli.running import Run

from barnabas import Broker
from barnabas.clients.fetched_records import ConsumerRecord
from barnabas.protocol.native import native
from barnabas.protocol.record import TimestampType
from barnabas.tools.cli import completion, start
from barnabas.tools.cli.app import COMMANDS
from barnabas.tools.cli.record_format import formatter
from barnabas.tools.cli.session import Row, watch_rows

COMMAND = [sys.executable, "-c", "import sys; from barnabas.tools.cli import main; sys.exit(main())"]
_numbers = itertools.count(1)


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"cli{next(_numbers)}"
    broker.create_topic(name, 2)
    return name


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "lines"
        path.write_text(text)
        return str(path)

    return write


def test_help_lists_every_command(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    for command in COMMANDS:
        assert command in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run: Run, command: str) -> None:
    status, out, _ = run(command, "--help")
    assert status == 0
    assert "usage" in out.lower()
    assert (command == "start") == ("requires barnabas[console]" in " ".join(out.replace("│", " ").split()))


def test_topics(run: Run) -> None:
    assert run("topic", "create", "x", "--partitions", "2", "--config", "retention.ms=5")[:2] == (
        0,
        "created topic x\n",
    )
    status, _, err = run("topic", "create", "x")
    assert (status, "TOPIC_ALREADY_EXISTS" in err) == (1, True)
    assert run("topic", "create", "x", "--if-not-exists")[0] == 0
    listed = json.loads(run("topic", "list", "--json")[1])
    assert {"topic": "x", "partitions": 2, "replicas": 1} in listed
    assert run("topic", "alter", "x", "--partitions", "3", "-d", "retention.ms")[0] == 0
    (described,) = json.loads(run("topic", "describe", "x", "--json")[1])
    assert len(described["partitions"]) == 3
    assert described["configs"] == {}
    assert run("topic", "delete", "x")[0] == 0
    assert run("topic", "delete", "x")[0] == 1
    assert run("topic", "delete", "x", "--if-exists")[0] == 0
    assert run("topic", "describe", "x")[0] == 1


def test_lines_go_in_and_out(run: Run, topic: str, lines: Callable[[str], str]) -> None:
    path = lines("a:1\nb:2\nno key\n")
    assert run("produce", topic, "-K", ":", "-H", "h=v", "-z", "lz4", "-l", path, "-p", "1")[0] == 0
    assert run("consume", topic, "-e")[1] == "1\n2\nno key\n"
    assert run("consume", topic, "-e", "-f", "%t %p %o %k|%s|%h|%K|%S\\n")[1] == (
        f"{topic} 1 0 a|1|h=v|1|1\n{topic} 1 1 b|2|h=v|1|1\n{topic} 1 2 |no key|h=v|-1|6\n"
    )


def test_where_to_begin_and_to_end(run: Run, topic: str, lines: Callable[[str], str]) -> None:
    run("produce", topic, "-l", lines("".join(f"{i}\n" for i in range(100))), "-p", "0")
    read = lambda *options: run("consume", topic, *options)[1].split()  # noqa: E731 - the command under test, short
    assert read("-o", "-3", "-e") == ["97", "98", "99"]
    assert read("-o", "50", "-c", "2") == ["50", "51"]
    assert read("-o", "end", "-e") == []
    assert read("-o", "@0", "-c", "1") == ["0"]
    assert read("-e", "-p", "1") == []
    assert read("-e", "-m", "^7") == ["7", *(str(i) for i in range(70, 80))]
    assert read("--until", "1000") == []
    assert run("consume", topic, "-o", "soon")[0] == 2
    assert run("consume", "missing", "-e")[0] == 1


def test_several_topics_and_patterns(run: Run, broker: Broker, lines: Callable[[str], str]) -> None:
    names = [f"many.{letter}" for letter in "abc"]
    for name in names:
        run("produce", name, "-l", lines(f"{name}\n"))
    assert sorted(run("consume", names[0], names[2], "-e")[1].split()) == [names[0], names[2]]
    assert sorted(run("consume", "^many.*", "-e")[1].split()) == names
    assert sorted(run("consume", "^many.*[ab]", names[2], "-e")[1].split()) == names
    assert run("consume", "^nothing.*", "-e")[::2] == (
        1,
        "barnabas: UNKNOWN_TOPIC_OR_PARTITION: no topic matches ^nothing.*\n",
    )
    assert run("consume", "^(", "-e")[0] == 2


def test_deleting_asks_who_sits_at_a_terminal(run: Run, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, status in (("n\n", 1), ("y\n", 0)):
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        assert run("topic", "delete", topic)[0] == status
    broker_topics = [row["topic"] for row in json.loads(run("topic", "list", "--json")[1])]
    assert topic not in broker_topics


@pytest.mark.parametrize(
    "words", [("topic", "delete-records", "some"), ("group", "delete", "some"), ("acl", "remove", "-t", "some")]
)
def test_so_does_what_else_cannot_be_undone(run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    terminal = io.StringIO("n\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    status, _, err = run(*words)
    assert status == 1 and "some" in err and "[y/N]" in err
    assert "[y/N]" not in run(*words, "--yes")[2]


@pytest.mark.parametrize("option", [("-K", "\\"), ("-K", ""), ("-D", "\\x"), ("-D", "\\u20ac")])
def test_a_separator_that_is_none_is_told_in_a_line(run: Run, topic: str, option: tuple[str, str]) -> None:
    status, _, err = run("produce", topic, *option)
    assert status == 2 and "expected text" in err


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "latency", "--rate", "0"),
        ("bench", "produce", "--record-size", "0"),
        ("bench", "produce", "--in-flight", "0"),
        ("bench", "produce", "-z", "none-such"),
        ("group", "reset-offsets", "g", "-t", "t", "--by-duration", "P99999999999D"),
        ("compact", "--status", "--url", "here"),
        ("compact", "--status", "--url", "http://127.0.0.1:port"),
    ],
)
def test_what_makes_no_sense_is_told_in_words(run: Run, words: tuple[str, ...]) -> None:
    status, _, err = run(*words)
    assert status in (1, 2) and err


async def test_where_there_is_nothing_to_watch_a_terminal_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    async def nothing_then_the_end() -> list[Row]:
        told.append(capsys.readouterr().out)
        if len(told) == 2:
            raise EOFError
        return []

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(EOFError):
        await watch_rows(nothing_then_the_end, as_json=False)
    assert ["no entries" in one for one in told] == [False, True]


def test_topics_tell_their_bytes(run: Run, topic: str, lines: Callable[[str], str]) -> None:
    run("produce", topic, "-l", lines("x" * 1000 + "\n"), "-p", "1")
    (described,) = json.loads(run("topic", "describe", topic, "--json")[1])
    assert [partition["bytes"] > 1000 for partition in described["partitions"]] == [False, True]
    assert re.search(r"  1\.\d kB\n", run("topic", "describe", topic)[1])


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("start --da", ["--data"]),
        ("start --log-format ", ["text", "json"]),
        ("topic describe compl", ["completed"]),
        ("consume compl", ["completed"]),
        ("group describe compl", ["completers"]),
        ("topic describe -b 127.0.0.1:1 ", []),
    ],
)
def test_a_shell_completes(
    run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]
) -> None:
    monkeypatch.setattr(completion, "_SECONDS", 60.0)  # a busy machine may keep somebody waiting for longer than usual
    run("topic", "create", "completed", "--if-not-exists")
    if offered == ["completers"]:
        run("consume", "completed", "-G", "completers", "-e")
    words = f"barnabas {line}"
    monkeypatch.setenv("_BARNABAS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - (not words.endswith(" "))))
    assert run()[1].split() == offered


def test_what_listens_and_is_no_broker(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        # Once it is connected, which takes a moment on a busy machine, it is not answered for as long.
        status, _, err = run("topic", "list", "-b", address, "-X", "socket.connection.setup.timeout.ms=2000")
        assert (status, err) == (1, f"barnabas: the server at {address} does not respond like a Kafka broker\n")


def test_envelopes_are_a_template_for_sending_again(run: Run, topic: str, lines: Callable[[str], str]) -> None:
    run("produce", topic, "-K", ":", "-H", "h=ü", "-l", lines("k:v\n:\n"), "-Z", "-p", "0")
    envelopes = run("consume", topic, "-e", "-J")[1]
    first, second = map(json.loads, envelopes.splitlines())
    assert (first["key"], first["payload"], first["headers"], first["offset"]) == ("k", "v", [["h", "ü"]], 0)
    assert (second["key"], second["payload"]) == (None, None)
    assert run("produce", topic, "-J", "-l", lines(envelopes), "-p", "1")[0] == 0
    again = [json.loads(line) for line in run("consume", topic, "-p", "1", "-e", "-J")[1].splitlines()]
    same = ("key", "payload", "headers", "ts", "offset")
    assert [[e[name] for name in same] for e in again] == [[e[name] for name in same] for e in (first, second)]
    assert run("produce", topic, "-J", "-l", lines("no json\n"))[0] == 2


def test_offsets_and_delete_records(run: Run, topic: str, lines: Callable[[str], str]) -> None:
    run("produce", topic, "-l", lines("1\n2\n3\n"), "-p", "0")
    assert json.loads(run("offsets", topic, "--json")[1])[0] == {
        "partition": 0,
        "beginning": 0,
        "end": 3,
        "records": 3,
    }
    assert run("topic", "delete-records", topic, "--before", "2", "-p", "0")[0] == 0
    assert run("offsets", topic, "-p", "0")[1] == "partition\tbeginning\tend\trecords\n0\t2\t3\t1\n"
    assert json.loads(run("offsets", topic, "-o", "2030-01-01T00:00", "-p", "0", "--json")[1])[0]["offset"] is None


def test_configs(run: Run, topic: str) -> None:
    assert run("config", "alter", "topic", topic, "-s", "cleanup.policy=compact")[0] == 0
    (entry,) = [e for e in json.loads(run("config", "describe", "topic", topic, "--json")[1]) if e["source"] == "topic"]
    assert (entry["key"], entry["value"]) == ("cleanup.policy", "compact")
    assert "log.retention.ms" in run("config", "describe", "broker", "1", "--all")[1]
    assert run("config", "alter", "topic", topic, "-s", "retention.ms=soon")[0] == 1
    assert run("config", "alter", "topic", topic)[0] == 2


def test_settings_have_kafkas_names(run: Run, topic: str, lines: Callable[[str], str]) -> None:
    path = lines("x\n")
    assert run("produce", topic, "-l", path, "-X", "linger.ms=1", "-X", "batch.size=1000")[0] == 0
    assert run("produce", topic, "-l", path, "-X", "no.such=1")[0] == 2
    assert run("produce", topic, "-l", path, "-X", "batch.size=big")[0] == 2
    assert run("produce", topic, "-l", path + "-missing")[0] == 1


def test_nobody_listens(run: Run) -> None:
    status, _, err = run("topic", "list", "-b", "127.0.0.1:1")
    assert (status, err) == (1, "barnabas: cannot reach broker at 127.0.0.1:1: connection refused\n")


def test_bench_measures_each_kind(run: Run) -> None:
    status, out, err = run("bench", "--seconds", "0.5", "--rate", "100", "--partitions", "2", "--json")
    assert status == 0, err
    rows = json.loads(out)
    assert len(rows) == 4
    assert all(row["records_per_second"] > 0 for row in rows)
    # On a loaded machine one fetch may take all of the time, and one is not enough for quantiles.
    assert all(row["p99_ms"] for row in rows if row["test"] != "fetch")
    assert "barnabas-bench" not in run("topic", "list")[1]


def test_dump_log_shows_what_was_produced(
    run: Run, tmp_path: Path, lines: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with Broker(topics=["d"], data_dir=data) as own:
        assert run("produce", "d", "-l", lines("shown\n"), "-b", own.bootstrap)[0] == 0
    status, out, err = run("dump-log", str(data / "d-0"), "--print-data-log", "--json")
    assert status == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert any(row["kind"] == "record" and "shown" in json.dumps(row) for row in rows)
    assert run("dump-log", str(data / "d-0" / "none.log"))[0] == 1
    status, out, err = run("dump-log", str(data))
    assert (status, err) == (0, "")
    assert f"Dumping {data / 'd-0' / '00000000000000000000.log'}" in out
    assert run("dump-log", str(tmp_path)) == (1, "", f"barnabas: {tmp_path}: contains no files of a partition\n")


def test_a_format_prints_each_token() -> None:
    record = ConsumerRecord("t", 1, 2, 3, TimestampType.CREATE_TIME, None, b"\xff\n", [("a", None)], 0)
    assert formatter("%d")(record._replace(timestamp=-1)) == b"-"
    assert datetime.fromisoformat(formatter("%d")(record).decode()).timestamp() == 0.003
    assert formatter("%d")(record._replace(timestamp=10**18)) == b"1000000000000000000", "microseconds, perhaps"
    assert formatter("%t/%p/%o/%T/%k/%s/%h/%%\\t")(record) == b"t/1/2/3//\xff\n/a=/%\t"


def test_start_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:9092\n")
    command = COMMAND
    options = ["--data", str(tmp_path / "data"), "--port", "0", "--topic", "a:3", "--override", "num.partitions=2"]
    process = subprocess.Popen(
        [*command, "start", str(tmp_path / "server.properties"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        listening = process.stdout.readline()
        assert listening.startswith("listening PLAINTEXT://127.0.0.1:")
        assert process.stdout.readline().startswith("health http://127.0.0.1:")
        assert process.stdout.readline().startswith("ready broker.id=7")
        bootstrap = listening.strip().rpartition("//")[2]
        piped = subprocess.run(
            [*command, "produce", "a", "-b", bootstrap], input="from a pipe\n", text=True, check=True, timeout=60
        )
        assert piped.returncode == 0
        shown = subprocess.run(
            [*command, "consume", "a", "-e", "-b", bootstrap], stdout=subprocess.PIPE, text=True, check=True, timeout=60
        )
        assert shown.stdout == "from a pipe\n"
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "options", [["--override", "nonsense"], ["--topic", "a:b"], ["missing.properties"], ["--override", "broker.id=x"]]
)
def test_start_refuses_what_it_cannot_do(run: Run, tmp_path: Path, options: list[str]) -> None:
    status, _, err = run("start", "--data", str(tmp_path), *options)
    assert status == 2
    assert err.startswith("barnabas start: ")


def test_start_loads_no_command_line_library() -> None:
    code = "import sys, barnabas.tools.cli.start; print({'typer', 'rich', 'construct', 'asyncio'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert shown.stdout == "set()\n"


@pytest.mark.parametrize(
    ("loaded", "left"),
    [
        ("barnabas.server.broker", "shutil lzma bz2 pickle tempfile argparse gettext difflib unicodedata"),
        ("barnabas.server.broker", "barnabas.storage.cleaning.cleaner barnabas.server.metadata.zookeeper_store"),
        ("barnabas.server.metadata.zookeeper_store", "barnabas.server.metadata.data_tree sqlite3"),
    ],
)
def test_a_broker_holds_nothing_that_most_have_no_use_for(loaded: str, left: str) -> None:
    unwanted = {*left.split(), *(["ctypes"] if native is not None else [])}
    code = (
        "import sys, barnabas.tools.cli.start as start\n"
        "start.options_of([])\n"
        f"import barnabas.server.__main__ as server, {loaded}\n"
        "server.keep_freed_memory(), server.return_freed_memory()\n"
        f"print({unwanted} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert shown.stdout == "set()\n"


@pytest.mark.verify
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_demo_reads_back_what_it_wrote(run: Run, codec: str) -> None:
    status, out, err = run("demo", "--json", "-z", codec)
    assert status == 0, err
    result = json.loads(out)
    assert result["equal"]
    assert result["consumed"]["records"] == 336_776
    assert result["disk_total"]["index_entries"] > 0
    recovered = result["compacted"]
    assert recovered["equal"] and recovered["aircraft"] == 4043
    assert recovered["bytes_after"] < recovered["bytes_before"] / 20


def test_partitions_that_are_not_there_are_refused_at_once(run: Run, topic: str) -> None:
    status, _, err = run("consume", topic, "-p", "1", "-p", "77")
    refusal = f"{topic} has 2 partitions; missing: 77"
    assert (status, err) == (1, f"barnabas: UNKNOWN_TOPIC_OR_PARTITION: {refusal}\n")


def test_a_folder_that_may_not_be_read_is_told_in_a_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert run("dump-log", str(tmp_path)) == (1, "", f"barnabas: {tmp_path}: Permission denied\n")


def test_errors_of_the_system_are_told_without_their_numbers(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        data = ["--data", str(tmp_path)]
        for words, status, said in (
            (["start", "--port", str(port), *data], 1, f"cannot listen on 127.0.0.1:{port}: address already in use"),
            (
                ["console", "--listen", f"127.0.0.1:{port}"],
                1,
                f"cannot listen on 127.0.0.1:{port}: address already in use",
            ),
            (
                ["start", "--console", "0.0.0.0:0", *data],
                2,
                "accepts connections from other machines; use `barnabas console --allow-remote`",
            ),
            (["start", str(missing)], 2, f"barnabas start: {missing}: No such file or directory"),
            (["topic", "list", "--command-config", str(missing)], 2, f"barnabas: {missing}: No such file or directory"),
            (["produce", "t", "-l", str(missing)], 1, f"barnabas: {missing}: No such file or directory"),
            (["certs", "/dev/null/x"], 1, "barnabas: /dev/null/x: Not a directory"),
            (["compact", "--status", "--url", "http://127.0.0.1:1"], 1, "does not respond: connection refused;"),
        ):
            done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=60)
            assert (done.returncode, said in done.stderr) == (status, True), (words, done.stderr)
            assert "Errno" not in done.stderr and "Traceback" not in done.stderr


def test_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "00000000000000000000.log"
    status, _, err = run("dump-log", str(missing))
    assert (status, err) == (1, f"barnabas: {missing}: No such file or directory\n")


def test_the_version_says_whether_there_is_compiled_code(run: Run) -> None:
    status, out, _ = run("--version")
    assert status == 0
    assert re.fullmatch(r"barnabas \d+\.\d+\.\d+ \(Python 3\.\d+\.\d+, (no )?compiled code\)\n", out)


def test_what_is_nearly_right_is_told(run: Run) -> None:
    status, _, err = run("topc", "list")
    assert (status, "did you mean 'topic'?" in err) == (2, True), err
    status, _, err = run("consume", "orders.*", "-e")
    assert (status, "a pattern begins with ^" in err) == (2, True), err


def test_the_cluster_may_be_said_before_the_command(broker: Broker) -> None:
    done = subprocess.run([*COMMAND, "-b", broker.bootstrap, "topic", "list"], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*COMMAND, "-b", "127.0.0.1:1", "topic", "list"], capture_output=True, timeout=60)
    assert (done.returncode, b"127.0.0.1:1" in done.stderr) == (1, True)
    done = subprocess.run([*COMMAND, "-b", "127.0.0.1:1", "start"], capture_output=True, timeout=60)
    assert (
        done.returncode,
        b"client options before the command are not supported by barnabas start" in done.stderr,
    ) == (2, True)


def test_output_that_has_nowhere_to_go(broker: Broker) -> None:
    broker.create_topic("nowhere")
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, "topic", "list", "-b", broker.bootstrap]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "barnabas: No space left on device\n")


def test_settings_of_a_broker_are_said_as_those_of_a_cluster() -> None:
    assert start.parser().parse_args(["--config", "a=1", "--override", "b=2"]).override == ["a=1", "b=2"]


def test_a_registry_that_does_not_answer(run: Run, broker: Broker) -> None:
    broker.produce("encoded", [b"\0\0\0\0\1{}"])
    status, _, err = run("consume", "encoded", "-e", "-r", "http://127.0.0.1:1")
    assert (status, err) == (1, "barnabas: schema registry http://127.0.0.1:1: Connection refused\n")
