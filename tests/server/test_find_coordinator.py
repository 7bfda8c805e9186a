"""FindCoordinator answers in every version, and says for every kind of key that there is no coordinator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.server.handlers.find_coordinator import GROUP, SHARE, TRANSACTION, handle


def ask(version: int, key_type: int, *keys: str) -> list[tuple[str, int]]:
    """Key and error code of each answer, through the wire."""
    request = FindCoordinatorRequest(key_type=key_type)
    if version >= 4:
        request.coordinator_keys = list(keys)
    else:
        request.key = keys[0]
    context: Any = SimpleNamespace(api_version=version)
    data = b"".join(bytes(part) for part in encode_response(handle(context, request), version))
    response = decode_response(ApiKey.FIND_COORDINATOR, version, data, 0, len(data))
    assert isinstance(response, FindCoordinatorResponse)
    if version >= 4:
        assert all((one.node_id, one.host, one.port) == (-1, "", -1) for one in response.coordinators)
        return [(one.key, one.error_code) for one in response.coordinators]
    assert (response.node_id, response.host, response.port) == (-1, "", -1)
    return [(keys[0], response.error_code)]


@pytest.mark.parametrize("version", range(7))
def test_nobody_coordinates_a_group(version: int) -> None:
    assert ask(version, GROUP, "readers") == [("readers", ErrorCode.COORDINATOR_NOT_AVAILABLE)]


@pytest.mark.parametrize("version", range(1, 7))
def test_nobody_coordinates_a_transaction(version: int) -> None:
    assert ask(version, TRANSACTION, "") == [("", ErrorCode.COORDINATOR_NOT_AVAILABLE)]


def test_each_key_gets_its_own_answer() -> None:
    answers = ask(4, GROUP, "readers", "")
    assert answers == [("readers", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("", ErrorCode.INVALID_GROUP_ID)]


def test_a_kind_of_key_that_the_version_does_not_know_is_refused() -> None:
    assert ask(5, SHARE, "g:t:0") == [("g:t:0", ErrorCode.INVALID_REQUEST)]
    assert ask(6, SHARE, "g:t:0") == [("g:t:0", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
