"""What holds for every request: its header, its version, its correlation id, and what closes a connection."""

from __future__ import annotations

import asyncio
import gc
import struct
import warnings
from typing import Any

import pytest
from tests.frames import framed
from tests.server.data_plane import DataPlane, play

from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.codec import encode_request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.apis.kafka_apis import KafkaApis
from barnabas.server.apis.table import SERVED
from barnabas.server.broker_state import services
from barnabas.server.config.listeners import ListenerConfig
from barnabas.server.security.session import Session


def header(key: int, version: int, correlation_id: int) -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, -1)


def test_the_answer_to_api_versions_has_the_old_header_in_every_version() -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.raw()
        for version in range(6):
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
            client.send(ApiKey.API_VERSIONS, version, request, 40 + version)
            frame = await client.frame()
            correlation_id, error = struct.unpack_from(">ih", frame)
            assert (correlation_id, error) == (40 + version, ErrorCode.NONE)

    play(talk)


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.raw()
        body = header(ApiKey.API_VERSIONS, version, 7) + b"whatever this may be"
        client.writer.write(framed(body))
        frame = await client.frame()
        correlation_id, error, count = struct.unpack_from(">ihi", frame)
        assert (correlation_id, error) == (7, ErrorCode.UNSUPPORTED_VERSION)
        assert len(frame) == 10 + 6 * count
        # The connection is good for a second try.
        client.send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), 8)
        assert (await client.receive(ApiKey.API_VERSIONS, 0))[0] == 8

    play(talk)


def test_api_versions_tells_what_is_served() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        assert connection.api_versions == {key: (api.lowest, api.highest) for key, api in SERVED.items()}

    play(talk)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(header(ApiKey.METADATA, 99, 1), id="unknown version"),
        pytest.param(header(999, 0, 1), id="unknown key"),
        pytest.param(header(ApiKey.METADATA, 1, 1) + b"\0\0", id="body cut off"),
        pytest.param(header(ApiKey.JOIN_GROUP, 5, 1) + b"\0\1x", id="body that waits for its turn cut off"),
        pytest.param(b"\0", id="header cut off"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_is_no_request_closes_its_connection_and_no_other(body: bytes) -> None:
    async def talk(plane: DataPlane) -> None:
        other = await plane.connect()
        client = await plane.raw()
        client.send(ApiKey.METADATA, 1, MetadataRequest(topics=[]), 1)
        client.writer.write(framed(body))
        client.send(ApiKey.METADATA, 1, MetadataRequest(topics=[]), 3)
        assert (await client.receive(ApiKey.METADATA, 1))[0] == 1
        assert await client.is_closed()
        assert (await other.send(MetadataRequest(topics=[]))).brokers

    play(talk)


@pytest.mark.parametrize("size", [-1, -(2**31), 104_857_601, 2**31 - 1])
def test_an_impossible_size_closes_the_connection(size: int) -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.raw()
        client.writer.write(struct.pack(">i", size) + b"x" * 100)
        assert await client.is_closed()

    play(talk)


def test_correlation_ids_come_back_as_they_were() -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.raw()
        for correlation_id in (0, -1, 2**31 - 1, -(2**31), 5, 5):
            for version in (1, 9):
                client.send(ApiKey.METADATA, version, MetadataRequest(topics=[]), correlation_id)
                assert (await client.receive(ApiKey.METADATA, version))[0] == correlation_id

    play(talk)


class Client:
    """Stands for a connection, and counts the answers."""

    session = Session("127.0.0.1", ListenerConfig("PLAINTEXT", "127.0.0.1", 9092))

    def __init__(self) -> None:
        self.answers = 0

    def send(self, parts: list[Any], size: int) -> None:
        assert sum(map(len, parts)) == size
        self.answers += 1


@pytest.mark.parametrize("key", sorted(key for key, api in SERVED.items() if api.is_queued))
def test_what_thousands_may_ask_for_at_once_is_handled_one_a_turn_of_the_loop(key: ApiKey) -> None:
    async def talk(plane: DataPlane) -> None:
        client: Any = Client()
        apis = KafkaApis(
            services(plane.state), plane.loop, quotas=plane.state.quotas, turn_queue=plane.state.turn_queue
        )
        buffer = bytearray(header(key, 0, 1) + encode_request(API_MESSAGES[key].request(group_id="strangers"), 0))
        for _ in range(5):
            apis.handle(client, memoryview(buffer), 0, len(buffer))
        buffer[:] = bytes(len(buffer))  # as the connection's next request would
        assert client.answers == 0
        for number in range(1, 6):
            await asyncio.sleep(0)
            assert client.answers == number

    play(talk)


def test_those_who_come_are_answered_one_a_turn_of_the_loop_and_not_behind_members_of_groups() -> None:
    async def talk(plane: DataPlane) -> None:
        newcomers, members = Client(), Client()
        apis = KafkaApis(
            services(plane.state), plane.loop, quotas=plane.state.quotas, turn_queue=plane.state.turn_queue
        )

        def ask(client: Any, key: ApiKey, **fields: Any) -> None:
            frame = bytearray(header(key, 0, 1) + encode_request(API_MESSAGES[key].request(**fields), 0))
            apis.handle(client, memoryview(frame), 0, len(frame))

        for _ in range(5):
            ask(members, ApiKey.HEARTBEAT, group_id="strangers")
        for _ in range(3):
            ask(newcomers, ApiKey.API_VERSIONS)
        for number in range(1, 6):
            await asyncio.sleep(0)
            assert (newcomers.answers, members.answers) == (min(number, 3), number)

    play(talk)


def test_a_handler_whose_task_is_cancelled_before_its_first_step_is_closed() -> None:
    """The first steps of the handler of ListOffsets run without a task."""
    key = ApiKey.LIST_OFFSETS
    steps = list[str]()

    async def wait(*_: Any) -> None:
        steps.append("begin")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("end")

    async def talk(plane: DataPlane) -> None:
        apis = KafkaApis(
            services(plane.state), plane.loop, quotas=plane.state.quotas, turn_queue=plane.state.turn_queue
        )
        apis.add_interceptor(lambda key, version, handle, respond: (wait, respond))
        frame = bytearray(header(key, 1, 1) + encode_request(API_MESSAGES[key].request(), 1))
        client: Any = Client()
        gc.collect()  # what other tests left without closing it is not counted
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            apis.handle(client, memoryview(frame), 0, len(frame))
            await apis.close()
            gc.collect()
        assert [str(one.message) for one in warned] == []

    play(talk)
    assert steps == ["begin", "end"]
