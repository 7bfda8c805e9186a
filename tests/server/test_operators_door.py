"""Whatever somebody sets, somebody on the broker's own machine can set it back."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.bench.wire import metadata_request, read_frame

from barnabas.clients.admin import Admin, ConfigChange, ConfigResource
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.server.network.socket_server import LOCAL_CONNECTIONS
from barnabas.testing.broker import Broker

SETTINGS = [
    {"max.connections": "0"},
    {"max.connections.per.ip.overrides": "127.0.0.1:0"},
    {"listener.name.plaintext.max.connections": "0"},
]


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


async def test_who_has_set_it_sets_it_back(tmp_path: Path) -> None:
    name, resource = "max.connections", ConfigResource(ConfigResourceType.BROKER, "")
    async with Broker(data_dir=tmp_path) as broker, Admin(broker.bootstrap) as admin:
        await admin.alter_configs({resource: [ConfigChange(name, "0")]})
    async with Broker(data_dir=tmp_path) as broker, Admin(broker.bootstrap) as admin:
        assert broker.server.state.config.max_connections == 0
        await admin.alter_configs({resource: [ConfigChange(name, "7")]})
        assert broker.server.state.config.max_connections == 7
