"""The readiness endpoint says when clients are served, to anybody who can speak HTTP."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from barnabas import Broker


def ask(url: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
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
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


def test_there_is_none_unless_it_is_asked_for(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        assert broker.server.health is None
