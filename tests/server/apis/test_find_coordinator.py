"""FindCoordinator answers in every version: groups have a coordinator here, share groups do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.server.handled import handled
from tests.waiting import until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.server.apis.handlers import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    find_coordinator,
    offset_fetch,
)
from barnabas.server.apis.handlers.find_coordinator import GROUP, SHARE, TRANSACTION
from barnabas.server.broker_state import services
from barnabas.server.coordinator import coordinator_topic
from barnabas.server.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC
from barnabas.server.runtime import loop_sharing
from barnabas.testing.broker import Broker

NOBODY = (-1, "", -1)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        yield running


async def ask(
    broker: Broker, version: int, key_type: int, *keys: str, is_broker: bool = True
) -> list[tuple[str, int, tuple[int, str, int]]]:
    """Key, error code and place of each answer, through the wire."""
    request = FindCoordinatorRequest(key_type=key_type)
    if version >= 4:
        request.coordinator_keys = list(keys)
    else:
        request.key = keys[0]
    context: Any = SimpleNamespace(
        api_version=version, broker=services(broker.server.state), listener=broker.server.listeners[0]
    )
    context.is_authorized = lambda *_: is_broker
    data = b"".join(bytes(part) for part in encode_response(await handled(find_coordinator, context, request), version))
    response = decode_response(ApiKey.FIND_COORDINATOR, version, data, 0, len(data))
    assert isinstance(response, FindCoordinatorResponse)
    if version >= 4:
        return [(one.key, one.error_code, (one.node_id, one.host, one.port)) for one in response.coordinators]
    if version > 0 and not response.error_code:
        assert response.error_message == "NONE"
    return [(keys[0], response.error_code, (response.node_id, response.host, response.port))]


@pytest.mark.parametrize("version", range(7))
async def test_this_broker_coordinates_a_group_and_creates_its_topic(broker: Broker, version: int) -> None:
    here = (broker.server.state.broker_id, "127.0.0.1", broker.port)
    assert await ask(broker, version, GROUP, "readers") == [("readers", ErrorCode.NONE, here)]
    topic = broker.server.state.metadata.topic(GROUP_METADATA_TOPIC)
    assert topic is not None and topic.is_internal
    assert len(topic.partitions) == 8
    log = broker.server.state.replica_manager.get_leader_partition(GROUP_METADATA_TOPIC, 0).log
    assert log.config.cleanup_policy == "compact"


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_transactional_id_belongs_to_the_only_broker(broker: Broker, version: int) -> None:
    here = (broker.server.state.broker_id, "127.0.0.1", broker.port)
    assert await ask(broker, version, TRANSACTION, "x") == [("x", ErrorCode.NONE, here)]
    assert broker.server.state.metadata.topic(GROUP_METADATA_TOPIC) is None


async def test_each_key_gets_its_own_answer(broker: Broker) -> None:
    here = (broker.server.state.broker_id, "127.0.0.1", broker.port)
    assert await ask(broker, 4, GROUP, "a", "b") == [("a", ErrorCode.NONE, here), ("b", ErrorCode.NONE, here)]


async def test_a_kind_of_key_that_the_version_does_not_know_is_refused(broker: Broker) -> None:
    assert await ask(broker, 5, SHARE, "g:t:0") == [("g:t:0", ErrorCode.INVALID_REQUEST, NOBODY)]
    assert await ask(broker, 6, SHARE, "g:t:0") == [("g:t:0", ErrorCode.INVALID_REQUEST, NOBODY)]


async def test_the_coordinator_of_a_share_partition_is_for_other_brokers(broker: Broker) -> None:
    key, here = "g:AAAAAAAAAAAAAAAAAAAAAQ:0", (broker.server.state.broker_id, "127.0.0.1", broker.port)
    refused = [(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOBODY)]
    assert await ask(broker, 6, SHARE, key, is_broker=False) == refused
    assert broker.server.state.metadata.topic(SHARE_GROUP_STATE_TOPIC) is None
    assert await ask(broker, 6, SHARE, key) == [(key, ErrorCode.NONE, here)]


async def test_without_a_place_for_the_topic_there_is_no_coordinator() -> None:
    async with Broker(config={"offsets.topic.replication.factor": "3"}) as broker:
        assert await ask(broker, 3, GROUP, "g") == [("g", ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)]


LONG_NAMES = [f"{number}".ljust(32_000, "x") for number in range(20)]
FETCHES = [OffsetFetchRequestGroup(group_id=name, topics=[]) for name in LONG_NAMES]


@pytest.mark.parametrize(
    ("handler", "version", "request_"),
    [
        (find_coordinator, 4, FindCoordinatorRequest(key_type=GROUP, coordinator_keys=LONG_NAMES)),
        (describe_groups, 5, DescribeGroupsRequest(groups=LONG_NAMES)),
        (delete_groups, 2, DeleteGroupsRequest(groups_names=LONG_NAMES)),
        (consumer_group_describe, 1, ConsumerGroupDescribeRequest(group_ids=LONG_NAMES)),
        (offset_fetch, 8, OffsetFetchRequest(groups=FETCHES)),
        (offset_fetch, 8, OffsetFetchRequest(groups=FETCHES, require_stable=True)),
    ],
)
async def test_long_names_are_hashed_a_few_in_a_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, handler: Any, version: int, request_: Any
) -> None:
    """Of which there are 250 in the largest request: half a second of the loop otherwise."""
    await ask(broker, 4, GROUP, "g")
    await until(lambda: not broker.server.state.group_coordinator.group_manager.is_loading)
    hashed, most = 0, 0
    find, rest = coordinator_topic.partition_for, loop_sharing.next_turn

    def hash_one(key: str, count: int) -> int:
        nonlocal hashed, most
        hashed += len(key)
        most = max(most, hashed)
        return find(key, count)

    async def begin_anew() -> None:
        nonlocal hashed
        hashed = 0
        await rest()

    monkeypatch.setattr(coordinator_topic, "partition_for", hash_one)
    monkeypatch.setattr(loop_sharing, "next_turn", begin_anew)
    context: Any = SimpleNamespace(
        api_version=version,
        broker=services(broker.server.state),
        listener=broker.server.listeners[0],
        has_authorizer=False,
        is_authorized=lambda *_: True,
    )
    await handled(handler, context, request_)
    assert 0 < most <= 150_000
