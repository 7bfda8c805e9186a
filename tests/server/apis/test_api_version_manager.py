"""What ApiVersions tells: rows that are made once, levels as they are now, and all of it encoded once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.server.apis import kafka_apis
from barnabas.server.apis.api_version_manager import ApiVersionManager
from barnabas.server.apis.handlers import api_versions
from barnabas.server.apis.kafka_apis import CachedResponseEncoder
from barnabas.server.apis.table import SERVED
from barnabas.server.metadata.cluster_features import TRANSACTION_VERSION


def test_rows_are_made_once_and_levels_are_those_of_now() -> None:
    levels = {TRANSACTION_VERSION: 2}
    features: Any = SimpleNamespace(epoch=0, level=lambda name: levels.get(name, 0))
    told = ApiVersionManager(SERVED, features)
    first, without = told.response(supports_level_zero=True), told.response(supports_level_zero=False)
    # What one client is told of its throttling is no other's.
    first.throttle_time_ms = 7
    assert (without.api_keys is first.api_keys, without.throttle_time_ms) == (True, 0)
    assert len(without.supported_features) < len(first.supported_features)
    levels[TRANSACTION_VERSION], features.epoch = 1, 1
    changed = told.response(supports_level_zero=True)
    assert [(one.name, one.max_version_level) for one in changed.finalized_features] == [(TRANSACTION_VERSION, 1)]
    assert (changed.finalized_features_epoch, changed.supported_features) == (1, first.supported_features)


@pytest.mark.parametrize("version", range(6))
def test_who_knows_of_features_is_told_their_epoch_and_that_nobody_waits_for_a_migration(version: int) -> None:
    features: Any = SimpleNamespace(epoch=3, level=lambda name: 2 if name == TRANSACTION_VERSION else 0)
    context: Any = SimpleNamespace(api_version=version, session=SimpleNamespace())
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    broker: Any = SimpleNamespace(broker_id=1, cluster_id="here")
    manager = ApiVersionManager(SERVED, features)
    answer = api_versions.handle(
        context, request, api_version_manager=manager, config_repository=broker, metadata_cache=broker
    )
    body = b"".join(encode_response(answer, version))
    told = decode_response(ApiKey.API_VERSIONS, version, body, 0, len(body))
    knows = version >= 3
    assert told.finalized_features_epoch == (3 if knows else -1)
    assert [one.name for one in told.finalized_features] == ([TRANSACTION_VERSION] if knows else [])
    assert told.zk_migration_ready is False


def test_what_is_the_same_for_all_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []

    def encode(response: object, version: int) -> Any:
        encoded.append(response)
        return encode_response(response, version)

    monkeypatch.setattr(kafka_apis, "encode_response", encode)
    levels = {TRANSACTION_VERSION: 2}
    features: Any = SimpleNamespace(epoch=0, level=lambda name: levels.get(name, 0))
    told, answers = ApiVersionManager(SERVED, features), CachedResponseEncoder()

    def sent(throttle_time_ms: int = 0) -> bytes:
        answer = told.response(supports_level_zero=True)
        answer.throttle_time_ms = throttle_time_ms
        body = answers.encode(answer, 4)
        assert body == encode_response(answer, 4)
        # Whoever sends it puts a head before it.
        return bytes(body.pop())

    assert sent() == sent()
    assert len(encoded) == 1
    assert len({sent(), sent(7), sent()}) == 2
    assert len(encoded) == 3
    levels[TRANSACTION_VERSION] = 1
    changed = sent()
    features.epoch = 1
    assert changed != sent()
    assert len(encoded) == 5
