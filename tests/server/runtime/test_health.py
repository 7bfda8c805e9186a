"""The readiness endpoint says when clients are served, to anybody who can speak HTTP."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from barnabas import Broker
from barnabas.server.runtime import health
from barnabas.server.runtime.health import MAX_CONNECTIONS_PER_HOST, MAX_REQUESTS_PER_HOST


def ask(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_running_broker_is_ready(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config={"health.port": "0"}) as broker:
        assert broker.server.health is not None
        url = broker.server.health.url
        status, facts = ask(url)
        assert (status, facts["ready"]) == (200, True)
        assert str(broker.port) in str(facts["listeners"])
        assert ask(url.replace("/health", "/nothing"))[0] == 404
        broker.server.failed.set()
        assert ask(url)[0] == 503
    with pytest.raises(OSError, match="refused"):
        ask(url)


async def exchange(port: int, request: bytes) -> bytes:
    """What comes back; a connection that is reset while it is still sent to has no more to tell."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with suppress(ConnectionError):
        writer.write(request)
        while piece := await asyncio.wait_for(reader.read(1 << 16), 60):
            answer += piece
    writer.close()
    return answer


@pytest.fixture
async def server() -> AsyncIterator[health.HealthServer]:
    loop = asyncio.get_running_loop()

    async def hello(request: health.HttpRequest) -> health.TextResponse:
        return health.TextResponse("200 OK", "text/plain", f"{request.query} {request.headers['x-a']}".encode())

    server = health.HealthServer("127.0.0.1", 0, lambda: (True, {}), loop, {("GET", "/hello"): hello}, names=["Broker"])
    await server.start()
    yield server
    await server.close()


HOST = b"Host: broker:1\r\n"


@pytest.mark.parametrize(
    ("request_head", "answer"),
    [
        (b"GET /hello?a=b%20c HTTP/1.1\r\n" + HOST + b"X-A: 7\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /health HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /health HTTP/1.1\n" + HOST + b"\n", b"HTTP/1.1 200 OK"),
        (b"HEAD /health HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: " + b"a" * 7000 + b"\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /health HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /health HTTP/1.1\r\n" + HOST + HOST + b"\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /health\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: " + b"a" * 8192, b"HTTP/1.1 431 "),
        (b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: a\r\n" * 1100 + b"\r\n", b"HTTP/1.1 431 "),
    ],
)
async def test_heads_are_parsed_and_bounded(server: health.HealthServer, request_head: bytes, answer: bytes) -> None:
    received = await exchange(server.port, request_head)
    assert received.startswith(answer) or (answer.endswith(b" 431 ") and not received)
    if b"/hello" in request_head:
        assert received.endswith(b"{'a': 'b c'} 7")


async def test_a_head_without_end_leaves_nothing_behind(server: health.HealthServer) -> None:
    """Neither at once nor in pieces: what a connection sent is free when the connection is, not when a timer ends."""
    for _ in range(20):
        received = await exchange(server.port, b"x" * (1 << 20))
        assert received == b"" or b" 431 " in received
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    with suppress(ConnectionError):
        for _ in range(health.MAX_REQUEST_BYTES + 2):
            writer.write(b"y")
            await writer.drain()
        assert b" 431 " in await asyncio.wait_for(reader.read(), 60)
    writer.close()
    del reader, writer
    async with asyncio.timeout(60):
        while server.connections:
            await asyncio.sleep(0.01)
    gc.collect()
    assert [one for one in gc.get_objects() if isinstance(one, health._Exchange)] == []


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("broker", 200),
        ("BROKER:9404", 200),
        ("localhost:9404", 200),
        ("10.1.2.3:9404", 200),
        ("[::1]:9404", 200),
        ("[fe80::1]", 200),
        ("evil.example.org:9404", 421),
        ("broker.evil.example.org", 421),
        ("localhost.evil.example.org", 421),
        ("127.0.0.1.evil.example.org", 421),
    ],
)
async def test_a_page_of_another_name_is_refused(server: health.HealthServer, host: str, status: int) -> None:
    head = f"GET /hello HTTP/1.1\r\nHost: {host}\r\nX-A: 1\r\n\r\n"
    assert (await exchange(server.port, head.encode())).startswith(f"HTTP/1.1 {status} ".encode())
    # Probes tell no names of topics or groups, and come under any name.
    head = f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n"
    assert (await exchange(server.port, head.encode())).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_a_log_directory_that_has_failed_is_reported(tmp_path: Path, path: str) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    config = {"health.port": "0", "log.dirs": f"{first},{second}", "metadata.store.path": str(tmp_path / "store")}
    with Broker(config=config) as broker:
        assert broker.server.health is not None
        url = broker.server.health.url.replace("/health", path)
        assert ask(url)[1]["offline.log.dirs"] == {}
        failure = OSError(errno.EIO, os.strerror(errno.EIO))
        replica_manager = broker.server.state.replica_manager
        broker._on_loop(lambda: replica_manager.log_dir_failed(str(first), failure))
        status, facts = ask(url)
        # The other directory is served; a restart, which a probe may bring about, would not mend the disk.
        assert (status, facts["ready"]) == (200, True)
        assert facts["offline.log.dirs"] == {str(first): "Input/output error"}


def test_there_is_none_unless_it_is_asked_for(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        assert broker.server.health is None


@pytest.mark.parametrize("beginning", [b"", b"GET /ready HT", b"GET /metrics HTTP/1.1\r\nHost: a\r\n"])
async def test_500_half_received_requests_do_not_keep_a_probe_out(tmp_path: Path, beginning: bytes) -> None:
    settings = {"health.port": "0", "metrics.listeners": "127.0.0.1:0"}
    async with Broker(data_dir=tmp_path, config=settings) as broker:
        assert broker.server.health is not None and broker.server.metrics is not None
        ports = [
            int(url.split("/")[2].split(":")[1]) for url in [broker.server.health.url, *broker.server.metrics.urls]
        ]
        for port in ports:
            held = []
            for _ in range(500):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(beginning)
                held.append(writer)
            for path in ("health", "ready"):
                assert (await asked(port, path)).startswith(b"HTTP/1.1 200 OK")
            for writer in held:
                writer.close()
        assert broker.server.health.connections <= MAX_CONNECTIONS_PER_HOST


async def asked(port: int, path: str) -> bytes:
    """The whole response to one GET."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer


async def test_a_probe_is_answered_while_all_other_requests_of_its_address_take_long() -> None:
    loop, go_on = asyncio.get_running_loop(), asyncio.Event()

    async def slow(_: health.HttpRequest) -> health.JsonResponse:
        await go_on.wait()
        return health.JsonResponse("200 OK", {})

    server = health.HealthServer("127.0.0.1", 0, lambda: (True, {}), loop, {("GET", "/slow"): slow}, names=())
    await server.start()
    slow_requests = [loop.create_task(asked(server.port, "slow")) for _ in range(MAX_REQUESTS_PER_HOST + 10)]
    async with asyncio.timeout(60):
        while sum(task.done() for task in slow_requests) < 10:
            await asyncio.sleep(0.001)
        assert (await asked(server.port, "ready")).startswith(b"HTTP/1.1 200 OK")
        go_on.set()
        answers = await asyncio.gather(*slow_requests)
        assert sum(answer.startswith(b"HTTP/1.1 503 ") for answer in answers) == 10
        assert sum(answer.startswith(b"HTTP/1.1 200 ") for answer in answers) == MAX_REQUESTS_PER_HOST
        while server.connections:
            await asyncio.sleep(0.001)
    await server.close()


async def test_a_response_that_is_not_taken_does_not_keep_a_probe_out() -> None:
    loop = asyncio.get_running_loop()

    async def much(_: health.HttpRequest) -> health.TextResponse:
        return health.TextResponse("200 OK", "text/plain", b"x" * (4 << 20))

    server = health.HealthServer("127.0.0.1", 0, lambda: (True, {}), loop, {("GET", "/much"): much}, names=())
    await server.start()
    held = []
    for _ in range(MAX_CONNECTIONS_PER_HOST + 10):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
        held.append(writer)
    assert (await asked(server.port, "ready")).startswith(b"HTTP/1.1 200 OK")
    for writer in held:
        writer.close()
    await server.close()


async def test_who_does_not_take_the_answer_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.2)
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    async def much(_: health.HttpRequest) -> health.TextResponse:
        asked.set()
        return health.TextResponse("200 OK", "text/plain", b"x" * (32 << 20))

    server = health.HealthServer("127.0.0.1", 0, lambda: (True, {}), loop, {("GET", "/much"): much}, names=())
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.write(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(60):
        await asked.wait()
        while server.connections:
            await asyncio.sleep(0.01)
    writer.close()
    await server.close()
