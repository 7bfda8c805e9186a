"""What producer, consumer and admin share, against scripted brokers: where metadata is asked for."""

from __future__ import annotations

import random
from typing import Any

from tests.clients.scripted_broker import ScriptedCluster, play

from barnabas.clients.client import Client
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataResponse


def test_who_is_asked_to_bootstrap_again_opens_new_connections() -> None:
    """Behind those that are open is who said so, and would say it again (KIP-1102)."""

    async def story(cluster: ScriptedCluster) -> None:
        client = Client(cluster.bootstrap, rng=random.Random(1))
        await client.start()
        old = len(cluster._connections)
        refused: list[float] = []

        def before(node: int, key: ApiKey, request: Any) -> Any:
            if key is not ApiKey.METADATA or len(cluster._connections) > old:
                return None
            refused.append(cluster.loop.time())
            return MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)

        cluster.before = before
        await client.topic("t", timeout_ms=10_000)
        assert len(refused) == 1
        await client.close()

    play(story)
