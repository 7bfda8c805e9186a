"""A Barnabas broker whose only bootstrap server is gone, in a quorum whose voters are in the metadata (KIP-853)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaControllers

from barnabas.clients.admin import Admin, NewTopic, raise_first
from barnabas.common.uuid_text import new_uuid, uuid_text

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]


async def create(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(topic, 1, 1)]))


def test_a_broker_starts_without_its_bootstrap_server_by_the_voters_in_the_metadata(tmp_path: Path) -> None:
    controllers = KafkaControllers(tmp_path / "controllers", count=3)
    voters = [
        f"{3000 + number}@{server.bootstrap}:{uuid_text(new_uuid(os.urandom))}"
        for number, server in enumerate(controllers.servers)
    ]
    for server in controllers.servers:
        server.add_properties(
            {
                "controller.quorum.voters": "",
                "controller.quorum.bootstrap.servers": controllers.bootstrap,
                "advertised.listeners": f"CONTROLLER://{server.bootstrap}",
            }
        )
        server.format_arguments = ["--initial-controllers", ",".join(voters)]
    with controllers:
        gone = controllers.servers[0]
        properties = {
            "broker.id": "1",
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": gone.bootstrap,
        }
        broker = BarnabasServer(tmp_path / "barnabas", properties=properties)
        with broker:
            asyncio.run(create(broker.bootstrap, "before"))
            gone.kill()
            asyncio.run(create(broker.bootstrap, "meanwhile"))
            broker.stop()
        with broker:
            asyncio.run(create(broker.bootstrap, "after"))
