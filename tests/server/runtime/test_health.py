"""The readiness endpoint says when clients are served, to anybody who can speak HTTP."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.server.runtime import health
from barnabas.server.runtime.health import MOST_OF_A_HOST


def ask(url: str) -> tuple[int, dict[str, object]]:
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


async def test_what_is_no_request_is_cut_off(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, config={"health.port": "0"}) as broker:
        assert broker.server.health is not None
        host, port = broker.server.health.url.split("/")[2].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"x" * 20_000)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


def test_there_is_none_unless_it_is_asked_for(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        assert broker.server.health is None


async def test_nobody_takes_all_connections(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, config={"health.port": "0"}) as broker:
        assert broker.server.health is not None
        port = broker.server.health.port
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_OF_A_HOST)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 60) == b"", "one too many"
        writer.close()
        held.pop()[1].close()
        async with asyncio.timeout(60):
            answer = b""
            while not answer:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /ready HTTP/1.1\r\n\r\n")
                with suppress(ConnectionError):
                    answer = await reader.read()
                writer.close()
        assert answer.startswith(b"HTTP/1.1 200 OK")
        for _, writer in held:
            writer.close()


async def test_who_does_not_take_the_answer_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.2)
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    async def much(_: health.Request) -> health.Text:
        asked.set()
        return health.Text("200 OK", "text/plain", b"x" * (32 << 20))

    server = health.HealthServer("127.0.0.1", 0, lambda: (True, {}), loop, {("GET", "/much"): much}, is_open=True)
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.write(b"GET /much HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(60):
        await asked.wait()
        while server.connections:
            await asyncio.sleep(0.01)
    writer.close()
    await server.close()
