"""What clients are told while the metadata store cannot be used."""

from __future__ import annotations

import pytest
from tests.server.data_plane import DataPlane, play

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from barnabas.server.metadata.metadata_store import (
    NoNodeError,
    SessionExpiredError,
    StoreError,
    StoreUnavailableError,
)


@pytest.mark.parametrize(
    ("failure", "code", "counted"),
    [
        (StoreUnavailableError, ErrorCode.KAFKA_STORAGE_ERROR, 0),
        (SessionExpiredError, ErrorCode.KAFKA_STORAGE_ERROR, 0),
        (NoNodeError, ErrorCode.UNKNOWN_SERVER_ERROR, 1),
    ],
)
def test_a_store_that_fails_is_no_fault_of_the_broker(failure: type[StoreError], code: ErrorCode, counted: int) -> None:
    async def talk(plane: DataPlane) -> None:
        async def fails(*_: object) -> None:
            raise failure("/config/users")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plane.state.store, "children", fails)
            client = await plane.connect()
            answer = await client.send(DescribeUserScramCredentialsRequest(users=None), 0)
        assert answer.error_code == code
        assert plane.server.apis.failures == counted
        assert (await client.send(CreateTopicsRequest(topics=[]), 7)).topics == []

    play(talk)
