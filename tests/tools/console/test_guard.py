"""Whom the console answers, and what no record makes of a page."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from tests.tools.console.conftest import BASE, TOKEN
from typer.testing import CliRunner

from barnabas import Broker
from barnabas.clients import Consumer
from barnabas.clients.security import Security
from barnabas.tools.cli import client_settings, console_options, consume, start
from barnabas.tools.cli.app import app
from barnabas.tools.connection_settings import ConnectionSettings
from barnabas.tools.console.app import console_app
from barnabas.tools.console.cluster import WatchedCluster
from barnabas.tools.console.guard import MAX_BODY_BYTES, TOKEN_HEADER, PageGuard
from barnabas.tools.console.previews import LIST_CHARS, full, preview
from barnabas.tools.console.record_filter import record_filter
from barnabas.tools.console.server import ConsoleThread
from barnabas.tools.http_server import ListenAddress

runner = CliRunner()


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"host": "evil.example:8080"}, 421),
        ("GET", {"host": "127.0.0.1.evil.example"}, 421),
        ("GET", {"host": ""}, 421),
        ("GET", {"origin": "http://evil.example"}, 403),
        ("GET", {"origin": "null"}, 403),
        ("GET", {"origin": "https://127.0.0.1:8080"}, 403),
        ("GET", {"origin": "http://127.0.0.1:9999"}, 403),
        ("GET", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", {"sec-fetch-site": "same-site"}, 403),
        ("POST", {TOKEN_HEADER: ""}, 403),
        ("POST", {TOKEN_HEADER: "another's"}, 403),
        ("POST", {"content-length": str(MAX_BODY_BYTES + 1)}, 413),
        ("DELETE", {TOKEN_HEADER: ""}, 403),
        ("GET", {"host": "LOCALHOST:8080", "origin": "http://localhost:8080"}, 200),
        ("GET", {"host": "[::1]:8080", "sec-fetch-site": "same-origin"}, 200),
    ],
)
async def test_only_a_page_of_our_own_is_answered(
    page: httpx.AsyncClient, method: str, headers: dict[str, str], status: int
) -> None:
    answer = await page.request(method, "/api/topics", headers=headers)
    assert answer.status_code == status, answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


async def test_a_body_ends_where_it_is_too_large_whatever_was_said(page: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * (MAX_BODY_BYTES // 10)

    answer = await page.post("/api/topics", content=endless())
    assert answer.status_code == 413


@pytest.mark.parametrize("body", [b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"name": {}}', b'{"configs": 7}'])
async def test_nonsense_is_refused_in_one_line(page: httpx.AsyncClient, body: bytes) -> None:
    answer = await page.post("/api/topics", content=body)
    assert answer.status_code in (400, 409), answer.text
    assert "\n" not in answer.json()["error"]


async def test_a_number_without_end_is_refused(page: httpx.AsyncClient) -> None:
    for path, body in (
        ("topics/t/records", '{"partition": Infinity}'),
        ("groups/g/reset", '{"kind": "offset", "value": Infinity}'),
    ):
        answer = await page.post(f"/api/{path}", content=body)
        assert (answer.status_code, "infinity" in answer.json()["error"]) == (400, True)


async def test_what_stands_in_front_under_our_name_may_speak_tls() -> None:
    guard = PageGuard(PlainTextResponse("fine"), token=TOKEN, names=["console.example", "localhost"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=BASE) as client:
        for host, origin, status in (
            ("Console.example", "https://console.Example", 200),
            ("console.example:8443", "https://console.example:8443", 200),
            ("console.example", "https://console.example:8443", 403),
            ("console.example", "https://evil.example", 403),
            ("localhost", "https://localhost", 403),
        ):
            assert (await client.get("/", headers={"host": host, "origin": origin})).status_code == status, origin


async def test_addresses_are_ours_where_we_listen_on_all_but_names_are_not() -> None:
    guard = partial(PageGuard, PlainTextResponse("fine"), token=TOKEN)
    for one, host, status in (
        (guard(any_address=True), "192.0.2.7:8080", 200),
        (guard(any_address=True), "evil.example:8080", 421),
        (guard(names=["Console.Example"]), "console.example", 200),
        (guard(), "192.0.2.7:8080", 421),
    ):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(one), base_url=BASE) as client:
            assert (await client.get("/", headers={"host": host})).status_code == status, host


async def test_the_page_has_the_token_and_everything_it_needs(page: httpx.AsyncClient) -> None:
    text = (await page.get("/")).text
    assert 'name="token" content="the-page&#x27;s"' in text
    assert "<script>" not in text and "style=" not in text
    for path in ("app.js", "style.css", "icon.svg", "list.js"):
        assert (await page.get(f"/static/{path}")).status_code == 200
    assert (await page.get("/static/../app.py")).status_code == 404


def test_what_is_shown_is_short_and_does_nothing() -> None:
    assert preview(None)["kind"] == "null"
    assert preview(b"")["kind"] == "empty"
    shown = preview("zero\0 escape\x1b[31m back\u202eward\nnext".encode())
    assert shown["text"] == "zero\u2400 escape\u241b[31m back\\u202eward\nnext"
    assert preview(bytes(range(256)))["kind"] == "hex"
    large = preview("ü".encode() * 5_000_000)
    assert (large["kind"], large["size"], large["cut"]) == ("text", 10_000_000, True)
    assert len(large["text"]) == LIST_CHARS
    assert len(json.dumps(full(b'{"a": "' + b"x" * 10_000_000 + b'"}'))) < 250_000
    assert "json" not in full(b"[" * 200_000)["forms"]


def test_a_small_record_is_not_made_large_and_half_a_character_is_told() -> None:
    deep = b"[" * 300 + b"1," * 100_000 + b"1" + b"]" * 300
    tracemalloc.start()
    try:
        assert full(deep)["forms"]["json"].startswith("[\n  [\n    [")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    shown = json.dumps(full(b'{"a": "\\ud800"}'), ensure_ascii=False).encode()
    assert json.loads(shown)["forms"]["json"] == '{\n  "a": "\\ud800"\n}'


def test_a_path_finds_what_is_there() -> None:
    value = json.dumps({"a": {"b": [{"c": "x"}, None]}, "n": 1.5}).encode()
    for path, found in (
        ("$.a.b[0].c", True),
        ("a.b[0].c = x", True),
        ("$.a.b[0].c = y", False),
        ("$.a.b[1] = null", True),
        ("$.a.b[2]", False),
        ("$.n = 1.5", True),
        ("$.n.m", False),
    ):
        assert record_filter(path=path)(None, value) is found, path
    assert not record_filter(path="$.a")(None, b"[" * 100_000)


async def test_a_secured_cluster_is_reached_by_the_settings_of_the_command_line() -> None:
    with Broker({"t": 1}, sasl={"anna": "s3cret"}) as broker:
        before = client_settings.overrides.set(broker.client_settings("anna", "PLAIN"))
        console = ConsoleThread(console_options.connection_settings_of(broker.bootstrap), ListenAddress("127.0.0.1", 0))
        client_settings.overrides.reset(before)
        try:
            async with httpx.AsyncClient(base_url=await console.start(), timeout=60) as client:
                assert (await client.get("/api/topics")).json()["rows"] == [["t", 1, 1, 0, 0]]
                assert json.loads((await client.get("/api/topics/t/records")).text.splitlines()[-1])["done"]
        finally:
            await console.stop()


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("GET", "/static/api.js", {}, 200),
        ("GET", "/api/topics", {}, 401),
        ("GET", "/api/overview", {TOKEN_HEADER: "a guess"}, 401),
        ("GET", "/api/topics/t/records", {TOKEN_HEADER: ""}, 401),
        ("GET", "/anything", {}, 401),
        ("POST", "/api/topics", {}, 401),
        ("GET", "/static/../api/topics", {}, 401),
        ("GET", "/api/topics", {TOKEN_HEADER: TOKEN}, 200),
    ],
)
async def test_without_a_secret_token_nobody_is_served_data(
    cluster: WatchedCluster, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    app = console_app(cluster, partial(PageGuard, token=TOKEN, is_secret=True), "")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        answer = await client.request(method, path, headers=headers)
        assert answer.status_code == status, answer.text
        assert TOKEN not in answer.text


async def test_a_console_with_a_token_is_opened_by_its_address(broker: Broker) -> None:
    token = "0123456789abcdef"
    connection_settings = ConnectionSettings(broker.bootstrap, {}, {}, {})
    console = ConsoleThread(connection_settings, ListenAddress("127.0.0.1", 0), access_token=token)
    url, _, fragment = (await console.start()).partition("#")
    try:
        assert fragment == f"token={token}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            assert token not in (await client.get("/")).text
            assert (await client.get("/api/topics")).status_code == 401
            assert (await client.get("/api/topics", headers={TOKEN_HEADER: token})).status_code == 200
    finally:
        await console.stop()


LOCAL, REMOTE = ListenAddress("127.0.0.1", 0), ListenAddress("0.0.0.0", 0)
ANYBODY, ANNA = (
    ConnectionSettings("h:1"),
    ConnectionSettings("h:1", {"security": Security(None, "PLAIN", "anna", "secret")}),
)


@pytest.mark.parametrize(
    ("said", "listen", "connection_settings", "is_required"),
    [
        (None, LOCAL, ANYBODY, False),
        (None, LOCAL, ANNA, True),
        (None, REMOTE, ANYBODY, True),
        ("off", REMOTE, ANNA, False),
        ("on", LOCAL, ANYBODY, True),
        ("x" * 16, LOCAL, ANYBODY, True),
    ],
)
def test_a_token_is_required_where_the_console_gives_away_more_than_the_broker(
    monkeypatch: pytest.MonkeyPatch,
    said: str | None,
    listen: ListenAddress,
    connection_settings: ConnectionSettings,
    is_required: bool,
) -> None:
    monkeypatch.delenv(console_options.ACCESS_TOKEN, raising=False)
    token = console_options.access_token("--console-token", said, listen, connection_settings)
    assert (token is not None) is is_required
    assert token is None or len(token) >= 16
    if said == "x" * 16:
        assert token == said
    monkeypatch.setenv(console_options.ACCESS_TOKEN, "y" * 20)
    if said is None:
        assert console_options.access_token("--console-token", None, listen, connection_settings) == "y" * 20


@pytest.mark.parametrize("said", ["", "short", "x" * 15, "with blanks and so on", "a" * 300])
def test_a_token_that_could_be_guessed_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="--console-token: expected on, off, or at least 16"):
        console_options.access_token("--console-token", said, LOCAL, ANYBODY)


def test_a_file_for_members_of_groups_will_do(tmp_path: Path) -> None:
    path = tmp_path / "consumer.properties"
    path.write_text("group.id=g\nenable.auto.commit=true\nsession.timeout.ms=9000\nfetch.max.wait.ms=7\n")
    before = client_settings.command_config.set(path)
    connection_settings = console_options.connection_settings_of("localhost:9092")
    consume._consumer("localhost:9092", None, "earliest", "read_uncommitted")
    client_settings.command_config.reset(before)
    assert connection_settings.consumer["fetch_max_wait_ms"] == 7
    Consumer(connection_settings.bootstrap, **connection_settings.consumer)


def test_the_command_says_in_one_line_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: str) -> tuple[int, str]:
        done = runner.invoke(app, ["console", *arguments])
        assert done.stderr.count("\n") == 1, done.stderr
        return done.exit_code, done.stderr

    assert refused("--listen", "0.0.0.0:0")[0] == 2
    assert refused("--listen", "here")[0] == 2
    status, said = refused("--listen", "127.0.0.1:0", "-b", "127.0.0.1:1")
    assert (status, "127.0.0.1:1" in said) == (1, True)
    monkeypatch.setattr(console_options, "find_spec", lambda name: None)
    status, said = refused()
    assert (status, "pip install 'barnabas[console]'" in said) == (2, True)


@pytest.mark.parametrize("option", ["--console-config=x", "--console-schemas=x", "--console-token=on"])
def test_settings_of_a_console_that_nobody_wanted_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert start.main([option, "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert said == f"barnabas start: {option.partition('=')[0]} requires --console\n"


def test_nobody_else_loads_it() -> None:
    code = "import sys, barnabas.tools.cli.start, barnabas.server.broker"
    loaded = {"starlette", "uvicorn", "anyio", "barnabas.tools.console", "fastavro", "google.protobuf"}
    check = f"print(sorted({loaded!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {check}"], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
