"""Connections that are silent, and clients that do not read."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing

import httpx
import pytest

from barnabas import Broker
from barnabas.tools import http_timeouts
from barnabas.tools.console import records
from barnabas.tools.console.cluster import MAX_FOLLOWINGS, ConnectionSettings
from barnabas.tools.console.previews import LIST_CHARS
from barnabas.tools.console.server import ConsoleThread
from barnabas.tools.http_server import ListenAddress

TIMEOUT = 60


@pytest.fixture
async def url(broker: Broker) -> AsyncIterator[str]:
    console = ConsoleThread(ConnectionSettings(broker.bootstrap, {}, {}, {}), ListenAddress("127.0.0.1", 0))
    yield await console.start()
    await console.stop()


def connect(url: str, said: str = "") -> socket.socket:
    """One that reads next to nothing of what comes."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    client.settimeout(TIMEOUT)
    where = httpx.URL(url)
    client.connect((where.host, where.port))
    client.sendall(said.encode())
    return client


def closed(client: socket.socket) -> bool:
    """Whether the console closes it, whatever else it sends before."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    return True


async def test_a_head_without_end_is_cut_off(url: str) -> None:
    def flood() -> int:
        sent = 0
        with closing(connect(url, "GET / HTTP/1.1\r\nX-A: ")) as client:
            try:
                while sent < 64 << 20:
                    client.sendall(b"a" * (1 << 16))
                    sent += 1 << 16
            except ConnectionError:
                return sent
        return sent

    assert await asyncio.to_thread(flood) < 32 << 20, "no more than the socket's buffers hold"


async def test_those_that_are_silent_shut_nobody_out(url: str) -> None:
    with ExitStack() as stack:
        for _ in range(2 * http_timeouts.MAX_CONNECTIONS):
            stack.enter_context(closing(connect(url)))
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as page:
            for _ in range(3):
                assert (await page.get("/api/topics")).status_code == 200


@pytest.mark.parametrize(
    "said", ["", "GET / HT", "POST /api/topics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"]
)
async def test_a_request_that_does_not_come_is_not_waited_for(
    url: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_timeouts, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(http_timeouts, "LOOK_SECONDS", 0.05)
    with closing(connect(url, said)) as client:
        assert await asyncio.to_thread(closed, client)


async def test_who_does_not_read_holds_no_place(broker: Broker, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_timeouts, "READ_SECONDS", 2.0)  # who reads may have to wait for a processor
    monkeypatch.setattr(http_timeouts, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(records, "FOLLOW_SECONDS", 0.0)
    row = ("\U0001f40c" * LIST_CHARS,) * 2
    broker.create_topic("torrent", 1)
    following = "GET /api/topics/torrent/records?follow=1 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    asked = {"follow": "1"}
    deadline = time.monotonic() + TIMEOUT
    with ExitStack() as stack:
        for _ in range(MAX_FOLLOWINGS):
            stack.enter_context(closing(connect(url, following)))
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as page:

            async def is_refused() -> bool:
                try:
                    async with page.stream("GET", "/api/topics/torrent/records", params=asked) as answer:
                        return "can show topics live" in await anext(answer.aiter_lines())
                except (httpx.ReadError, httpx.RemoteProtocolError):
                    return False  # it had a place, and was too slow itself for so little patience

            while not await is_refused():
                assert time.monotonic() < deadline
            while await is_refused():  # until those that do not read are given up
                await asyncio.to_thread(broker.produce, "torrent", [row] * 500)
                assert time.monotonic() < deadline
