"""Produce requests of many connections that arrive together: every record once, at the acknowledged offset."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from bench.wire import connect, fetch_request, metadata_request, one_record_batch, produce_request, read_frame
from tests.server.network.test_response_batcher import exactly

from barnabas.protocol import joint_produce
from barnabas.protocol.errors import ErrorCode
from barnabas.server.apis import joint_produce as apis_joint_produce
from barnabas.storage import joint_append, log_segment
from barnabas.storage.joint_append import JointAppend
from barnabas.storage.log_validator import ValidationResult
from barnabas.testing import embedded
from barnabas.testing.broker import Broker

CLIENTS = 40
TWINS = ["python", "compiled"]


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(apis_joint_produce, "group_produces", joint_produce.group_produces_py)
        monkeypatch.setattr(joint_append, "join_produces", joint_produce.join_produces_py)
        monkeypatch.setattr(log_segment, "locate_batches", joint_produce.locate_batches_py)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of records that were appended jointly."""
    counts: Counter[str] = Counter()
    original = JointAppend.__call__

    def count(self: JointAppend, *arguments: Any) -> ValidationResult:
        found = original(self, *arguments)
        counts["records"] += found.record_count
        return found

    monkeypatch.setattr(JointAppend, "__call__", count)
    return counts


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "event_loop", request.param)


def one(value: bytes, topic: str = "t", *, index: int = 0, **options: Any) -> bytes:
    """A request with one record that has this value."""
    return produce_request(topic, [(index, value_batch(value))], **options)


def value_batch(value: bytes) -> bytes:
    return one_record_batch(value, 1_700_000_000_000)


def answer(client: socket.socket) -> tuple[int, int, int]:
    """Correlation id, error code and base offset of the next response to Produce version 7."""
    size = int.from_bytes(exactly(client, 4), "big")
    frame = exactly(client, size)
    (correlation_id,) = struct.unpack_from(">i", frame)
    name_size = struct.unpack_from(">h", frame, 8)[0]
    error, offset = struct.unpack_from(">hq", frame, 4 + 4 + 2 + name_size + 4 + 4)
    return correlation_id, error, offset


def numbered(frame: bytes, correlation_id: int) -> bytes:
    return frame[:8] + correlation_id.to_bytes(4, "big") + frame[12:]


def clients_of(broker: Broker, stack: ExitStack, count: int = CLIENTS) -> list[socket.socket]:
    return [stack.enter_context(connect(broker.bootstrap)) for _ in range(count)]


@pytest.mark.usefixtures("twin", "loop")
def test_each_record_is_appended_once_at_the_offset_of_its_response(joined: Counter[str]) -> None:
    rng = random.Random(3)
    wrong = bytearray(one(b"wrong"))
    wrong[-1] ^= 1
    kinds: list[tuple[Callable[[bytes], bytes], ErrorCode]] = [
        (one, ErrorCode.NONE),
        (lambda value: one(value, acks=-1), ErrorCode.NONE),
        (lambda value: one(value, index=1), ErrorCode.NONE),
        (lambda value: one(value, "other"), ErrorCode.NONE),
        (lambda value: one(value, "missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda _: bytes(wrong), ErrorCode.CORRUPT_MESSAGE),
        (lambda value: one(value, "__consumer_offsets"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    config = {"auto.create.topics.enable": "false"}
    with Broker({"t": 2, "other": 1}, config=config) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack)
        expected: dict[tuple[str, int, int], bytes] = {}
        for turn in range(6):
            asked: list[list[tuple[int, int, ErrorCode, bytes]]] = []
            for place, client in enumerate(clients):
                chosen = rng.choices(range(len(kinds)), [20, 4, 3, 3, 1, 1, 1], k=rng.randrange(1, 6))
                own, frames = [], []
                for number, kind in enumerate(chosen):
                    value = f"{turn}/{place}/{number}".encode()
                    frames.append(numbered(kinds[kind][0](value), number))
                    own.append((number, kind, kinds[kind][1], value))
                asked.append(own)
                client.sendall(b"".join(frames))
            for client, own in zip(clients, asked, strict=True):
                for number, kind, code, value in own:
                    correlation_id, error, offset = answer(client)
                    assert (correlation_id, error) == (number, code)
                    if not error:
                        place_of = ("other", 0, offset) if kind == 3 else ("t", 1 if kind == 2 else 0, offset)
                        assert place_of not in expected
                        expected[place_of] = value
        stored = {
            (record.topic, record.partition, record.offset): record.value
            for topic in ("t", "other")
            for record in broker.records(topic)
        }
        assert stored == expected
        assert joined["records"] > 100


@pytest.mark.usefixtures("loop")
def test_one_connection_that_pipelines_is_appended_jointly(joined: Counter[str]) -> None:
    with Broker(["t"]) as broker, connect(broker.bootstrap) as client:
        client.sendall(b"".join(numbered(one(b"%d" % number), number) for number in range(300)))
        assert [answer(client) for _ in range(300)] == [(number, 0, number) for number in range(300)]
        assert [record.value for record in broker.records("t")] == [b"%d" % number for number in range(300)]
        assert joined["records"] > 100


def test_a_waiting_fetch_gets_the_records_of_a_joint_append(joined: Counter[str]) -> None:
    with Broker(["t"]) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack)
        reader = stack.enter_context(connect(broker.bootstrap))
        while not joined["records"]:
            reader.sendall(fetch_request("t", len(broker.records("t")), 1 << 20))
            for client in clients:
                client.sendall(one(b"x"))
            for client in clients:
                assert answer(client)[1] == 0
            assert b"x" in read_frame(reader)


@pytest.mark.parametrize("quotas", [{}, {"metrics.listeners": "127.0.0.1:0"}], ids=["none", "measured"])
def test_requests_that_wait_for_the_disk_are_appended_together_one_of_each_connection(
    joined: Counter[str], quotas: dict[str, str]
) -> None:
    with Broker(["t"], config={"acks.all.durability": "disk", **quotas}) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack, 12)
        for turn in range(10):
            for client in clients:
                client.sendall(one(b"x", acks=-1) * 3 + one(b"y"))
            offsets = [answer(client)[1:] for client in clients for _ in range(4)]
            assert sorted(offsets) == [(0, 48 * turn + offset) for offset in range(48)]
    assert bool(joined) is not bool(quotas), "measured requests are handled one by one"


def test_requests_that_wait_too_long_get_an_error(joined: Counter[str]) -> None:
    with Broker(["t"], config={"acks.all.durability": "disk"}) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack, 12)
        short = produce_request("t", [(0, value_batch(b"x"))], -1)
        at = short.index((30_000).to_bytes(4, "big"))
        short = short[:at] + (1).to_bytes(4, "big") + short[at + 4 :]
        codes: set[int] = set()
        with broker.faults.late_flushes():
            while ErrorCode.REQUEST_TIMED_OUT not in codes or not joined:
                for number, client in enumerate(clients):
                    client.sendall(numbered(short, number))
                answers = [answer(client) for client in clients]
                assert [correlation_id for correlation_id, _, _ in answers] == list(range(len(clients)))
                codes |= {code for _, code, _ in answers}
        assert codes <= {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}
        for client in clients:
            client.sendall(one(b"y"))
            assert answer(client)[1] == ErrorCode.NONE


def test_a_full_disk_is_reported_to_each_request(joined: Counter[str]) -> None:
    with Broker(["t"]) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack)
        with broker.faults.disk_full():
            for client in clients:
                client.sendall(one(b"lost") * 2)
            assert {answer(client)[1] for client in clients for _ in range(2)} == {ErrorCode.KAFKA_STORAGE_ERROR}
        for client in clients:
            client.sendall(one(b"kept") * 2)
        assert sorted(answer(client)[2] for client in clients for _ in range(2)) == list(range(2 * CLIENTS))
        assert {record.value for record in broker.records("t")} == {b"kept"}


def test_other_requests_of_the_turn_are_answered(joined: Counter[str]) -> None:
    with Broker(["t"]) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack)
        for _ in range(5):
            for client in clients:
                client.sendall(one(b"x") + metadata_request("t") + one(b"y"))
            for client in clients:
                assert answer(client)[1] == 0
                assert b"t" in exactly(client, int.from_bytes(exactly(client, 4), "big"))
                assert answer(client)[1] == 0
    assert joined["records"] > 0
