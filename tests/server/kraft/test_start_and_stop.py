"""The start of a broker in a KRaft cluster whose controllers do not respond, and the stop of one that has failed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.protocol.errors import KafkaError
from barnabas.server.broker import BrokerServer
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.runtime.host import host_ports

DEADLINE_S = 30


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[BrokerServer]:
    """A broker whose controller accepts connections and sends no response."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {
            "process.roles": "broker",
            "node.id": "2",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(folder),
        }
        yield BrokerServer(BrokerConfig.from_properties(settings), host_ports(loop, WorkerPool(loop)), loop)


async def test_a_start_that_waits_for_controllers_can_be_given_up(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asyncio.timeout(DEADLINE_S):
        start = asyncio.create_task(server.start())
        done, _ = await asyncio.wait([start], timeout=0.1)
        assert not done
        server.give_up_start()
        with pytest.raises(KafkaError, match="cancelled"):
            await start
        assert server.was_start_given_up
        assert await server.stop(leave=False)


async def test_a_failure_ends_a_start_that_waits_for_controllers(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asyncio.timeout(DEADLINE_S):
        start = asyncio.create_task(server.start())
        server._fail(ValueError("a record of the metadata cannot be read"))
        with pytest.raises(KafkaError, match="a record of the metadata cannot be read"):
            await start
        assert not server.was_start_given_up
        assert await server.stop()


@pytest.mark.parametrize("has_failed", [False, True])
async def test_a_broker_that_has_failed_leaves_without_a_controlled_shutdown(tmp_path: Path, has_failed: bool) -> None:
    calls = []

    async def leave() -> bool:
        calls.append("leave")
        return True

    async with broker(tmp_path) as server, asyncio.timeout(DEADLINE_S):
        server._member = cast(Any, SimpleNamespace(leave=leave))
        if has_failed:
            server._fail(ValueError("a record of the metadata cannot be read"))
        assert await server.stop()
    assert calls == ([] if has_failed else ["leave"])
