"""FindCoordinator: the coordinators of groups or transactional ids, many in one request if supported (KIP-699)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ..client import Client
from ..cluster import BrokerNode
from ..connection import BrokerConnection
from ..errors import code_of

GROUP, TRANSACTION = 0, 1
"""Types of keys."""
_FIRST_VERSION_WITH_MANY = 4
_LAST_VERSION = 5
"""Version 6 adds share groups, which this client does not support."""


async def find_coordinators(
    client: Client, keys: Iterable[str], key_type: int = GROUP
) -> dict[str, BrokerNode | KafkaError]:
    """Return the coordinator of each key, or its error; one attempt. Raises KafkaError."""
    wanted = list(keys)
    connection = await client.any_connection()
    version = connection.version_for(ApiKey.FIND_COORDINATOR, highest=_LAST_VERSION)
    if version >= _FIRST_VERSION_WITH_MANY:
        response = await connection.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=wanted), version)
        return {found.key: _node(found) for found in response.coordinators}
    return dict(await asyncio.gather(*(_ask_for_one(connection, version, key, key_type) for key in wanted)))


async def _ask_for_one(
    connection: BrokerConnection, version: int, key: str, key_type: int
) -> tuple[str, BrokerNode | KafkaError]:
    response = await connection.send(FindCoordinatorRequest(key=key, key_type=key_type), version)
    return key, _node(response, key)


def _node(found: Coordinator | FindCoordinatorResponse, asked: str = "") -> BrokerNode | KafkaError:
    if found.error_code != ErrorCode.NONE:
        key = found.key if isinstance(found, Coordinator) else asked
        return KafkaError(code_of(found.error_code), found.error_message or f"the coordinator of {key!r}")
    return BrokerNode(found.node_id, found.host, found.port)
