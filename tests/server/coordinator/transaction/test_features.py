"""The level of `transaction.version`: chosen by an operator, told to clients, written down, heard of by all brokers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.coordinator.transaction.producers import NONE, RawProducer, committed_values
from tests.server.data_plane import DataPlane, play

from barnabas.clients import Producer
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.server.coordinator.transaction.transaction_metadata import TransactionEntry
from barnabas.server.metadata import znodes
from barnabas.server.metadata.cluster_features import TRANSACTION_VERSION
from barnabas.testing import Cluster

UP, SAFE, UNSAFE = 1, 2, 3
OTHER_LEVELS = {"group.version": 1, "share.version": 2, "streams.version": 1}
REFUSED = ErrorCode.INVALID_UPDATE_VERSION


async def levels(connection: BrokerConnection) -> tuple[int, dict[str, int]]:
    """Epoch and levels, as clients are told."""
    answer = await connection.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    return answer.finalized_features_epoch, {one.name: one.max_version_level for one in answer.finalized_features}


def update(level: int, kind: int = UP, name: str = TRANSACTION_VERSION, **options: Any) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)], **options
    )


@pytest.mark.parametrize("version", [1, 2])
def test_levels_go_up_and_down_and_survive_a_restart(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        assert await levels(connection) == (0, {**OTHER_LEVELS, TRANSACTION_VERSION: 2})
        for epoch, (request, error, level) in enumerate(
            [
                (update(1, SAFE, validate_only=True), NONE, 2),
                (update(1, UP), REFUSED, 2),
                (update(3, UP), REFUSED, 2),
                (update(-1, UNSAFE), REFUSED, 2),
                (update(1, 4), REFUSED, 2),
                (update(1, SAFE, "no.such.feature"), REFUSED, 2),
                (update(0, SAFE, "group.version"), REFUSED, 2),
                (update(1, UP, "kraft.version"), REFUSED, 2),
                (update(1, UP, "eligible.leader.replicas.version"), REFUSED, 2),
                (update(2, UP), NONE, 2),
                (update(1, SAFE), NONE, 1),
                (update(2, SAFE), REFUSED, 1),
                (update(0, UNSAFE), NONE, 0),
                (update(2, UP), NONE, 2),
                (update(1, SAFE), NONE, 1),
            ]
        ):
            answer = await connection.send(request, version)
            assert answer.error_code == error, epoch
            assert bool(answer.error_message) == (error != NONE)
            named = [(one.feature, one.error_code) for one in answer.results]
            assert named == ([(TRANSACTION_VERSION, NONE)] if version < 2 and error == NONE else [])
            _, told = await levels(connection)
            assert told.get(TRANSACTION_VERSION, 0) == level
        assert (await levels(connection))[0] == 4
        connection.close()
        await plane.world.broker.stop()
        await plane.world.broker.start()
        assert await levels(await plane.connect()) == (
            4,
            {**OTHER_LEVELS, TRANSACTION_VERSION: 1},
        )

    play(talk)


def test_a_feature_without_a_level_can_be_set_to_0() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for name in ("kraft.version", "eligible.leader.replicas.version", "metadata.version"):
            for kind in (UP, SAFE, UNSAFE):
                answer = await connection.send(update(0, kind, name), 2)
                assert answer.error_code == NONE, (name, kind, answer.error_message)
        connection.close()

    play(talk)


def test_the_supported_features_are_those_of_kafka() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        answer = await connection.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        assert {one.name: (one.min_version, one.max_version) for one in answer.supported_features} == {
            "eligible.leader.replicas.version": (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 33),
            "share.version": (0, 2),
            "streams.version": (0, 1),
            TRANSACTION_VERSION: (0, 2),
        }
        connection.close()

    play(talk)


def test_version_0_says_whether_it_may_be_a_downgrade() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for allow, error in ((False, REFUSED), (True, NONE)):
            key = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=1, allow_downgrade=allow)
            answer = await connection.send(UpdateFeaturesRequest(feature_updates=[key]), 0)
            assert answer.error_code == error

    play(talk)


def test_all_updates_are_made_or_none() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        keys = [
            FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=1, upgrade_type=SAFE),
            FeatureUpdateKey(feature="metadata.version", max_version_level=9, upgrade_type=UP),
        ]
        answer = await connection.send(UpdateFeaturesRequest(feature_updates=keys), 1)
        assert (answer.error_code, answer.results) == (REFUSED, [])
        many = [FeatureUpdateKey(feature=f"f{number}", max_version_level=1) for number in range(101)]
        answer = await connection.send(UpdateFeaturesRequest(feature_updates=many), 1)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert await levels(connection) == (0, {**OTHER_LEVELS, TRANSACTION_VERSION: 2})

    play(talk)


@pytest.mark.parametrize("level", [0, 1])
def test_below_2_nobody_speaks_the_second_version(level: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        assert (await connection.send(update(level, SAFE), 1)).error_code == NONE
        mine = Producer(
            f"{plane.server.listeners[0].host}:{plane.server.listeners[0].port}",
            transactional_id="x",
            rng=plane.world.random,
            wall_clock_ms=plane.now_ms,
        )

        def known() -> TransactionEntry:
            found = plane.state.transaction_coordinator.state_manager.find_transaction("x")
            assert found is not None
            return found

        async with mine:
            for number in range(3):
                async with mine.transaction():
                    await mine.send("t", b"%d" % number, partition=0)
                await plane.until(lambda: not known().is_busy)
                assert known().metadata.producer_epoch == 0
        assert await committed_values(plane) == [b"0", b"1", b"2"]
        # One that was in the middle when the level was changed goes on as it began.
        late = await RawProducer.open(plane, "y", version=2)
        await late.send(b"3")
        await late.commit()

    play(talk)


async def test_a_cluster_hears_of_it() -> None:
    async with Cluster(brokers=3) as cluster:

        async def connect(broker_id: int) -> BrokerConnection:
            host, _, port = cluster.address(broker_id).partition(":")
            return await BrokerConnection.open(host, int(port), ConnectionOptions())

        async with asyncio.timeout(60):
            connections = {broker_id: await connect(broker_id) for broker_id in cluster.brokers}
            controller = cluster.controller
            for broker_id, connection in connections.items():
                error = NONE if broker_id == controller else ErrorCode.NOT_CONTROLLER
                assert (await connection.send(update(1, SAFE), 2)).error_code == error
            for connection in connections.values():
                while await levels(connection) != (
                    1,
                    {**OTHER_LEVELS, TRANSACTION_VERSION: 1},
                ):
                    await asyncio.sleep(0.01)
            # A broker that says nothing of it, as one of Apache Kafka: nothing that it could not bear is put there.
            assert controller is not None
            store = cluster.server(controller).state.store
            path = znodes.broker_path(next(broker for broker in cluster.brokers if broker != controller))
            data, _ = await store.get(path)
            await store.set(path, data.replace(b'"transaction.version"', b'"another.version"'))
            assert (await connections[controller].send(update(2, UP), 2)).error_code == REFUSED
            assert (await connections[controller].send(update(0, SAFE), 2)).error_code == NONE
            assert (await store.get(znodes.FEATURE))[0] == b'{"features":{},"version":2,"status":1}'
            for connection in connections.values():
                connection.close()


def test_what_kafka_has_there_is_read() -> None:
    assert znodes.decode_features(b'{"version":2,"status":1,"features":{"transaction.version":1}}') == {
        TRANSACTION_VERSION: 1
    }
    first = b'{"version":1,"status":1,"features":{"a":{"min_version_level":1,"max_version_level":3}}}'
    assert znodes.decode_features(first) == {"a": 3}
    assert znodes.decode_features(b'{"version":1,"status":0,"features":{}}') == {}
    with pytest.raises(ValueError, match="invalid features"):
        znodes.decode_features(b'{"version":2,"status":1,"features":[]}')
