"""Names and records that strangers chose: they reach neither the terminal's controls nor another line of the output."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from tests.tools.cli.running import Run

from barnabas import Broker
from barnabas.clients.admin import Admin, GroupDescription
from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.common.printable_text import printable, printable_json
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.runtime.log_output import JsonFormatter, TextFormatter
from barnabas.tools.cli import completion
from barnabas.tools.cli.session import rows_table

FORGED = "a\nevil\tEmpty\x1b[2J\u202e\x9b1m"
MARKUP = "[/x]"
HOSTILE = (FORGED, MARKUP)
COMMAND = [sys.executable, "-c", "import sys; from barnabas.tools.cli import main; sys.exit(main())"]


@pytest.fixture(scope="module")
def groups(broker: Broker) -> Iterator[list[str]]:
    """Groups with hostile names, each with a committed offset."""
    broker.create_topic("read")

    async def commit() -> None:
        for group in (FORGED, MARKUP):
            async with Consumer(broker.bootstrap, group_id=group) as consumer:
                consumer.assign([TopicPartition("read", 0)])
                await consumer.commit({TopicPartition("read", 0): 0})

    asyncio.run(commit())
    yield [FORGED, MARKUP]


def test_printable_text_keeps_letters_and_escapes_controls() -> None:
    assert printable("grün, ключ, 鍵 и 😀") == "grün, ключ, 鍵 и 😀"
    assert printable(FORGED) == "a\\nevil\\tEmpty\\x1b[2J\\u202e\\x9b1m"
    assert printable("\ud800") == "\\ud800"
    document = json.dumps({"name": FORGED + "\ud800"}, ensure_ascii=False, indent=2)
    assert json.loads(printable_json(document)) == {"name": FORGED + "\ud800"}
    assert all(line.isprintable() for line in printable_json(document).split("\n"))


@pytest.mark.parametrize("command", ["list", "lag", "describe"])
def test_group_names_in_a_pipe_do_not_forge_lines_or_columns(run: Run, groups: list[str], command: str) -> None:
    status, out, err = run("group", command)
    assert status == 0, err
    assert all(line.isprintable() for line in out.replace("\t", " ").splitlines())
    if command != "describe":
        header, *rows = out.splitlines()
        assert {row.count("\t") for row in rows} == {header.count("\t")}
        assert sorted(row.split("\t")[0] for row in rows) == sorted(map(printable, groups))
    found = json.loads(run("group", command, "--json")[1])
    assert {row["group"] for row in found} == set(groups)


def test_tables_show_names_with_brackets_as_they_are() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    console.print(rows_table([{"group": MARKUP, "lag": 1}, {"group": FORGED, "lag": 2}], "groups"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert MARKUP in shown
    assert "evil" in shown
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown


def test_errors_and_results_that_name_a_group_are_one_line(run: Run, groups: list[str]) -> None:
    status, out, err = run("group", "delete", "--yes", "gone\nbarnabas: deleted group x", FORGED)
    assert status == 1
    assert out == f"deleted group {printable(FORGED)}\n"
    assert err == "barnabas: group gone\\nbarnabas: deleted group x: GROUP_ID_NOT_FOUND\n"


def test_completions_leave_out_names_that_cannot_be_typed(broker: Broker, groups: list[str]) -> None:
    class Context:
        params: dict[str, str] = {"bootstrap": broker.bootstrap}  # noqa: RUF012

        def find_root(self) -> Context:
            return self

    assert completion.groups(Context(), "") == []  # type: ignore[arg-type]
    plain = ["readers", "team-a.reader_1", "ключ", "a:b"]
    commands = ["$(reboot)", "`reboot`", "a;reboot", "a|b", "a&b", "a b", "a'b", 'a"b', "a\\b", "*", "a?", "~x", "-y"]
    assert [name for name in [*plain, *commands, *HOSTILE, ""] if completion.is_plain_word(name)] == plain


@pytest.mark.parametrize("formatter", [TextFormatter("%(levelname)s %(message)s"), JsonFormatter()])
def test_a_log_line_stays_one_line(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("barnabas", logging.INFO, "", 0, "group %s is empty", (FORGED,), None)
    text = formatter.format(record)
    assert text.isprintable()
    assert "evil" in text


def test_an_exception_does_not_forge_a_log_line() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        record = logging.LogRecord("barnabas", logging.ERROR, "", 0, "failed", None, sys.exc_info())
    event, *rest = TextFormatter("%(levelname)s %(message)s").format(record).split("\n")
    assert event == "ERROR failed"
    assert any("evil" in line for line in rest)
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


# -- records that were printed are produced again --------------------------------------------------------------------

Lines = Callable[[str], str]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    def write(text: str) -> str:
        path = tmp_path / "lines"
        path.write_text(text)
        return str(path)

    return write


def produced(broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    return [(record.key, record.value, list(record.headers)) for record in broker.records(topic)]


def test_kcats_envelopes_are_produced(run: Run, broker: Broker, lines: Lines) -> None:
    """kcat writes headers as a flat list of names and values."""
    broker.create_topic("kcat")
    line = {"topic": "x", "partition": 3, "offset": 9, "tstype": "create", "ts": 12, "broker": 0}
    envelope = line | {"headers": ["a", "1", "a", None], "key": None, "payload": "v"}
    assert run("produce", "kcat", "-J", "-l", lines(json.dumps(envelope)))[0] == 0
    assert produced(broker, "kcat") == [(None, b"v", [("a", b"1"), ("a", None)])]
    assert broker.records("kcat")[0].timestamp == 12


def test_decoded_payloads_are_produced_as_the_json_that_was_printed(run: Run, broker: Broker, lines: Lines) -> None:
    broker.create_topic("decoded")
    text = '{"n":12345678901234567.89,"n":0.10,"big":1e400,"list":[1,true,null,"ü"],"base64":"eA=="}'
    envelope = f'{{"key":7.50,"payload":{text},"ts":-1}}'
    assert run("produce", "decoded", "-J", "-H", "h=1", "-l", lines(envelope))[0] == 0
    assert produced(broker, "decoded") == [(b"7.50", text.encode(), [("h", b"1")])]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("[]", "JSON object"),
        ("{", "not JSON"),
        ('{"key":"k"}', "payload: missing"),
        ('{"payload":{"base64":"!!"}}', "payload: not valid base64"),
        ('{"payload":{"base64":"eA"}}', "payload: not valid base64"),
        ('{"payload":"v","ts":"now"}', "ts:"),
        ('{"payload":"v","ts":1.5}', "ts:"),
        ('{"payload":"v","ts":true}', "ts:"),
        ('{"payload":"v","ts":9223372036854775808}', "ts:"),
        ('{"payload":"v","headers":{"a":"b"}}', "headers:"),
        ('{"payload":"v","headers":["a"]}', "headers:"),
        ('{"payload":"v","headers":[["a"]]}', "headers:"),
        ('{"payload":"v","headers":[[null,"a"]]}', "headers:"),
        ('{"payload":"\\ud800"}', "payload: a lone surrogate"),
        ('{"payload":NaN}', "NaN"),
        ('{"payload":' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_a_line_that_is_not_a_record_is_one_line_of_error(
    run: Run, broker: Broker, lines: Lines, line: str, wrong: str
) -> None:
    status, out, err = run("produce", "wrong", "-J", "-l", lines(f'{{"payload":"good"}}\n{line}\n'))
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "line 2" in err
    assert wrong in err


def test_headers_of_the_same_name_are_kept(run: Run, broker: Broker, lines: Lines) -> None:
    broker.create_topic("headers")
    assert run("produce", "headers", "-H", "a=1", "-H", "a=2", "-H", "b=x=y", "-l", lines("v\n"))[0] == 0
    assert produced(broker, "headers") == [(None, b"v", [("a", b"1"), ("a", b"2"), ("b", b"x=y")])]
    assert run("produce", "headers", "-H", "a", "-l", lines("v\n"))[0] == 2


class AbortedError(Exception):
    """Ends a transaction."""


def test_the_last_n_are_n_records_where_offsets_hold_markers(run: Run, broker: Broker) -> None:
    """Fifty transactions of one record each: every other offset is a marker."""
    broker.create_topic("marked")

    async def write() -> None:
        async with Producer(broker.bootstrap, transactional_id="writer") as producer:
            for number in range(50):
                with suppress(AbortedError):
                    async with producer.transaction():
                        await producer.send("marked", b"%d" % number)
                        await producer.flush()
                        if number % 5 == 4:
                            raise AbortedError

    asyncio.run(write())
    everything = [str(number) for number in range(50)]
    committed = [str(number) for number in range(50) if number % 5 != 4]
    for count in (1, 3, 25, 40, 50, 1000):
        assert run("consume", "marked", "-e", "-o", f"-{count}")[1].split() == everything[-count:]
        read = run("consume", "marked", "-e", "-o", f"-{count}", "--isolation", "read_committed")[1].split()
        assert read == committed[-count:]


def test_the_last_n_are_n_records_of_a_compacted_topic(run: Run, broker: Broker) -> None:
    broker.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    broker.produce(
        "compacted", [(b"%d" % (number % 10 if number % 20 else number), b"%d" % number) for number in range(200)]
    )
    broker.compact("compacted")
    left = [str(record.offset) for record in broker.records("compacted")]
    assert len(left) < 30, "most offsets are gaps"
    for count in (1, 2, 11, 15, 1000):
        assert run("consume", "compacted", "-e", "-o", f"-{count}")[1].split() == left[-count:]


# -- a container or a service manager ends a command ------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_member_that_is_terminated_commits_and_leaves_its_group(broker: Broker, number: signal.Signals) -> None:
    topic, group = f"member-{number.name}", f"group-{number.name}"
    broker.create_topic(topic)
    broker.produce(topic, [b"1", b"2", b"3"])
    process = subprocess.Popen(
        [*COMMAND, "consume", topic, "-G", group, "-b", broker.bootstrap],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),  # nohup ignores SIGHUP for all its children
    )
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    finally:
        process.kill()
        process.wait()

    async def look() -> tuple[int, dict[TopicPartition, int]]:
        async with Admin(broker.bootstrap) as admin:
            (described,) = (await admin.describe_groups([group])).values()
            assert isinstance(described, GroupDescription)
            (offsets,) = (await admin.list_group_offsets([group])).values()
            assert not isinstance(offsets, KafkaError)
            return len(described.members), {tp: found.offset for tp, found in offsets.items()}

    members, offsets = asyncio.run(look())
    assert members == 0, "the next member would wait for the session to time out"
    assert offsets == {TopicPartition(topic, 0): 3}


def test_a_producer_that_is_terminated_does_not_wait_for_its_pipe(broker: Broker) -> None:
    broker.create_topic("piped")
    process = subprocess.Popen([*COMMAND, "produce", "piped", "-b", broker.bootstrap], stdin=subprocess.PIPE)
    try:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nnot yet a li")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while len(broker.records("piped")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert [record.value for record in broker.records("piped")] == [b"one", b"two"]
