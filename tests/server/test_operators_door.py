"""Whatever somebody sets, somebody on the broker's own machine can set it back."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from bench.wire import metadata_request, read_frame

from barnabas.clients.admin import Admin, ConfigChange, ConfigResource
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.config.startup_warnings import NO_WAY_IN
from barnabas.server.network.socket_server import LOCAL_CONNECTIONS
from barnabas.testing.broker import Broker

SETTINGS = [
    {"max.connections": "0"},
    {"max.connections.per.ip.overrides": "127.0.0.1:0"},
    {"listener.name.plaintext.max.connections": "0"},
]
OF_THE_FILE = [*SETTINGS, {"max.connection.creation.rate": "0"}]
REFUSED = ["max.connections", "max.connection.creation.rate"]
LEAST: list[dict[str, str]] = [
    {"max.connections": "1"},
    {"listener.name.plaintext.max.connections": "1"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.255.255.1:1"},
    {"max.connections.per.ip.overrides": "127.0.0.1:0,::1:0"},
    {"max.connection.creation.rate": "1"},
    {"listener.name.plaintext.max.connection.creation.rate": "1"},
]
"""The least that may be set while a broker runs."""
EVERYBODY = ConfigResource(ConfigResourceType.BROKER, "")
CREATION_RATE = "connection_creation_rate"
AT_ONCE_S = 20.0
"""Far less than a connection waits that a rate of next to nothing puts off."""


def is_served(stream: socket.socket) -> bool:
    try:
        stream.sendall(metadata_request("t"))
        return bool(read_frame(stream))
    except ConnectionError:
        return False


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_few_connections_from_here_are_never_too_many(tmp_path: Path, settings: dict[str, str]) -> None:
    with Broker(["t"], data_dir=tmp_path, config=settings) as broker:
        address = "127.0.0.1", broker.port
        streams = [socket.create_connection(address, timeout=30) for _ in range(LOCAL_CONNECTIONS)]
        assert all(map(is_served, streams))
        with socket.create_connection(address, timeout=30) as one_more:
            assert not is_served(one_more)
        for stream in streams:
            stream.close()


@pytest.mark.parametrize("settings", LEAST)
async def test_who_has_set_it_takes_it_back_after_a_restart(tmp_path: Path, settings: dict[str, str]) -> None:
    async with Broker(data_dir=tmp_path) as broker, Admin(broker.bootstrap) as admin:
        await admin.alter_configs({EVERYBODY: [ConfigChange(name, value) for name, value in settings.items()]})
    async with Broker(data_dir=tmp_path) as broker:
        config = broker.server.state.config
        assert config.cluster_overrides == settings
        for _ in range(5):
            async with asyncio.timeout(AT_ONCE_S), Admin(broker.bootstrap) as admin:
                assert await admin.describe_configs([EVERYBODY])
        async with asyncio.timeout(AT_ONCE_S), Admin(broker.bootstrap) as admin:
            await admin.alter_configs(
                {EVERYBODY: [ConfigChange(name, None, ConfigOperation.DELETE) for name in settings]}
            )
        assert config.cluster_overrides == {}


@pytest.mark.parametrize("settings", OF_THE_FILE)
async def test_who_has_locked_all_out_in_the_file_is_warned_and_served_from_here(settings: dict[str, str]) -> None:
    async with Broker(config=settings) as broker, asyncio.timeout(AT_ONCE_S), Admin(broker.bootstrap) as admin:
        await admin.alter_configs({EVERYBODY: [ConfigChange("log.retention.ms", "7")]})
        (name,) = settings
        warned = [notice for notice in broker.server.config.startup_warnings if name in notice]
        assert warned == ([] if "per.ip" in name else [f"{NO_WAY_IN}: {name}"])
        if "per.ip" not in name:
            await admin.alter_configs({EVERYBODY: [ConfigChange(name, "7")]})


@pytest.mark.parametrize("key", REFUSED)
@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext."])
async def test_no_limit_becomes_zero_while_the_broker_runs(key: str, prefix: str) -> None:
    async with Broker() as broker, Admin(broker.bootstrap) as admin:
        refused = (await admin.alter_configs({EVERYBODY: [ConfigChange(prefix + key, "00")]}))[EVERYBODY]
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_REQUEST
        assert f"Invalid {key} 0: " in str(refused)
        assert broker.server.state.config.cluster_overrides == {}


@pytest.mark.parametrize("address", [None, "127.0.0.1"])
async def test_a_quota_of_new_connections_keeps_nobody_from_taking_it_back(tmp_path: Path, address: str | None) -> None:
    entity = {"ip": address}
    async with Broker(data_dir=tmp_path) as broker, Admin(broker.bootstrap) as admin:
        with pytest.raises(KafkaError, match="must be greater than 0"):
            await admin.alter_quotas(entity, {CREATION_RATE: 0})
        await admin.alter_quotas(entity, {CREATION_RATE: 1})
    async with Broker(data_dir=tmp_path) as broker:
        quota = broker.server.state.quotas.connections
        while quota.wait("127.0.0.1", broker.server.sockets.loop.time()) == 0:
            pass
        async with asyncio.timeout(AT_ONCE_S), Admin(broker.bootstrap) as admin:
            await admin.alter_quotas(entity, {CREATION_RATE: None})
        assert quota.limits == {}


@pytest.mark.parametrize(("own", "is_let_in"), [("10.0.0.5", True), ("10.0.0.6", False)])
async def test_a_handshake_from_an_own_address_begins_whatever_the_limits_say(own: str, is_let_in: bool) -> None:
    async with Broker(config={"max.connections": "0"}) as broker:
        assert broker.server.sockets._may_connect("PLAINTEXT", "10.0.0.5", own, 7) is is_let_in
