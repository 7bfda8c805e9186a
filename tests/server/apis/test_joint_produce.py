"""Produce requests of many connections that arrive together: every record once, at the acknowledged offset."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvloop
from bench.wire import (
    connect,
    fetch_request,
    metadata_request,
    one_record_batch,
    produce_request,
    read_frame,
    request_frame,
    text,
)
from tests.server.network.test_response_batcher import exactly

from barnabas.protocol import joint_produce
from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.batch_header import stamp_producer
from barnabas.protocol.errors import ErrorCode
from barnabas.server.apis import joint_produce as apis_joint_produce
from barnabas.server.apis.joint_produce import JointProduce
from barnabas.server.quotas.client_quota_manager import ClientQuotaManager
from barnabas.server.quotas.entities import CLIENT_ID, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from barnabas.server.replication import replica_manager
from barnabas.server.runtime import write_queue
from barnabas.storage import joint_append, log_segment
from barnabas.storage.joint_append import JointAppend
from barnabas.storage.log_validator import ValidationResult
from barnabas.testing import embedded
from barnabas.testing.broker import Broker

CLIENTS = 40
PASSWORDS = {"anna": "a", "ben": "b"}
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
TWINS = ["python", "compiled"]


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(apis_joint_produce, "group_produces", joint_produce.group_produces_py)
        monkeypatch.setattr(joint_append, "join_produces", joint_produce.join_produces_py)
        monkeypatch.setattr(log_segment, "locate_batches", joint_produce.locate_batches_py)


@pytest.fixture(params=["fast disk", "slow disk"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slow disk, each append uses up the time for appends of its turn. The answers must not depend on it."""
    if request.param == "slow disk":
        monkeypatch.setattr(replica_manager, "MIN_COUNTED_SECONDS", 0.0)
        monkeypatch.setattr(replica_manager, "SLICE_SECONDS", 0.0)
        monkeypatch.setattr(write_queue, "SECONDS_PER_TURN", 0.0)


@pytest.fixture(params=["together", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How requests are handled: the answers must not depend on it."""
    if request.param == "one by one":
        monkeypatch.setattr(JointProduce, "handle", lambda *_: iter(()))
    return str(request.param)


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


def produced(value: bytes, producer: tuple[int, int, int], *, acks: int = 1, index: int = 0) -> bytes:
    """A request with one record of a producer with this id, epoch and sequence."""
    batch = bytearray(value_batch(value))
    stamp_producer(batch, *producer)
    return produce_request("t", [(index, bytes(batch))], acks)


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


@contextmanager
def one_turn(broker: Broker) -> Iterator[None]:
    """Hold the broker's loop, so that it receives all requests of the block in one turn."""
    assert broker._loop is not None
    release = threading.Event()
    broker._loop.call_soon_threadsafe(release.wait, 60)
    try:
        yield
    finally:
        release.set()


def clients_of(broker: Broker, stack: ExitStack, count: int = CLIENTS) -> list[socket.socket]:
    return [stack.enter_context(connect(broker.bootstrap)) for _ in range(count)]


@pytest.mark.usefixtures("twin", "loop", "disk")
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


@pytest.mark.usefixtures("loop", "disk")
def test_one_connection_that_pipelines_is_appended_jointly(joined: Counter[str]) -> None:
    with Broker(["t"]) as broker, connect(broker.bootstrap) as client:
        client.sendall(b"".join(numbered(one(b"%d" % number), number) for number in range(300)))
        assert [answer(client) for _ in range(300)] == [(number, 0, number) for number in range(300)]
        assert [record.value for record in broker.records("t")] == [b"%d" % number for number in range(300)]
        assert joined["records"] > 100


@pytest.mark.usefixtures("loop", "disk")
def test_requests_to_several_partitions_are_appended_in_their_order() -> None:
    with Broker({"t": 5}) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack, 4)
        for place, client in enumerate(clients):
            batches = [[(index, value_batch(b"%d/%d" % (place, number))) for index in range(5)] for number in range(3)]
            client.sendall(b"".join(produce_request("t", of_request) for of_request in batches))
        for client in clients:
            for _ in range(3):
                exactly(client, int.from_bytes(exactly(client, 4), "big"))
        for index in range(5):
            values = [record.value for record in broker.records("t", index)]
            for place in range(4):
                own = [value for value in values if value.startswith(b"%d/" % place)]
                assert own == [b"%d/%d" % (place, number) for number in range(3)]


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


def test_requests_that_wait_for_the_disk_are_appended_together_one_of_each_connection(joined: Counter[str]) -> None:
    with Broker(["t"], config={"acks.all.durability": "disk"}) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack, 12)
        for turn in range(10):
            for client in clients:
                client.sendall(one(b"x", acks=-1) * 3 + one(b"y"))
            offsets = [answer(client)[1:] for client in clients for _ in range(4)]
            assert sorted(offsets) == [(0, 48 * turn + offset) for offset in range(48)]
    assert joined["records"] > 0


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


def test_batches_after_one_that_a_full_disk_rejected_get_its_error(joined: Counter[str], way: str) -> None:
    """Until it is sent again: after that the batches of the connection are appended jointly again."""
    with Broker(["t"]) as broker, ExitStack() as stack:
        (client,) = clients_of(broker, stack, 1)

        def send(*sequences: int) -> list[int]:
            client.sendall(b"".join(produced(b"%d" % number, (7, 0, number)) for number in sequences))
            return [answer(client)[1] for _ in sequences]

        assert send(0) == [ErrorCode.NONE]
        with broker.faults.disk_full():
            assert send(1) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert send(2, 3) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert send(1, 2, 3) == [ErrorCode.NONE] * 3
        assert not joined["records"]
        assert send(*range(4, 9)) == [ErrorCode.NONE] * 5
        assert send(10) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], "a real gap"
        assert [record.value for record in broker.records("t")] == [b"%d" % number for number in range(9)]
    assert bool(joined["records"]) is (way == "together")


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


class ProducerModel:
    """The requests of one idempotent producer, and the answers that it must get."""

    def __init__(self, producer_id: int, rng: random.Random, acks: int) -> None:
        self._id = producer_id
        self._rng = rng
        self._acks = acks
        self._epoch = 0
        self._next = rng.choice([0, 2**31 - 5])
        self._window: list[tuple[int, bytes]] = []
        self.offsets: dict[bytes, int] = {}
        """The offsets of the acknowledged values."""

    def request(self, value: bytes) -> tuple[bytes, ErrorCode, bytes]:
        """A request, its error code, and the value at the offset of its answer."""
        kind = self._rng.choices(
            ["next", "repeated", "gap", "old epoch", "new epoch", "no sequence", "none"], [12, 3, 1, 1, 1, 1, 3]
        )[0]
        epoch, sequence, code = self._epoch, self._next, ErrorCode.NONE
        if kind == "none":
            return one(value, acks=self._acks), code, value
        if kind == "no sequence":
            epoch, sequence, code = epoch, -1, ErrorCode.INVALID_RECORD
        elif kind == "new epoch":
            self._epoch, epoch, sequence, self._window = epoch + 1, epoch + 1, 0, []
        elif not self._window:
            pass  # the first batch of an epoch has no batch before it
        elif kind == "gap":
            sequence, code = (sequence + 3) % 2**31, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif kind == "old epoch":
            epoch, code = epoch - 1, ErrorCode.INVALID_PRODUCER_EPOCH
        elif kind == "repeated":
            sequence, earlier = self._rng.choice(self._window)
            return self._frame(b"again", epoch, sequence), code, earlier
        if code is ErrorCode.NONE:
            self._window = [*self._window, (sequence, value)][-5:]
            self._next = (sequence + 1) % 2**31
        return self._frame(value, epoch, sequence), code, value

    def _frame(self, value: bytes, epoch: int, sequence: int) -> bytes:
        return produced(value, (self._id, epoch, sequence), acks=self._acks)


@pytest.mark.usefixtures("twin", "disk")
@pytest.mark.parametrize(("acks", "durability"), [(1, "disk"), (-1, "page-cache"), (-1, "disk")])
def test_idempotent_producers_get_the_same_answers_together_and_one_by_one(
    joined: Counter[str], way: str, acks: int, durability: str
) -> None:
    with Broker(["t"], config={"acks.all.durability": durability}) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack)
        models = [ProducerModel(1000 + place, random.Random(place), acks) for place in range(CLIENTS)]
        for turn in range(8):
            asked = []
            for place, (client, model) in enumerate(zip(clients, models, strict=True)):
                count = model._rng.randrange(1, 6)
                own = [model.request(f"{turn}/{place}/{number}".encode()) for number in range(count)]
                asked.append(own)
                client.sendall(b"".join(numbered(frame, number) for number, (frame, _, _) in enumerate(own)))
            for client, model, own in zip(clients, models, asked, strict=True):
                for number, (_, code, value) in enumerate(own):
                    correlation_id, error, offset = answer(client)
                    assert (correlation_id, error) == (number, code)
                    if not error:
                        assert model.offsets.setdefault(value, offset) == offset, "a repeated batch has its offset"
        expected = {offset: value for model in models for value, offset in model.offsets.items()}
        assert len(expected) == sum(len(model.offsets) for model in models)
        assert {record.offset: record.value for record in broker.records("t")} == expected
        assert (joined["records"] > 100) is (way == "together")


def test_a_request_repeated_after_a_lost_answer_is_appended_once(joined: Counter[str]) -> None:
    with Broker(["t"]) as broker, ExitStack() as stack:
        others = clients_of(broker, stack)
        for turn in range(10):
            lost = [connect(broker.bootstrap) for _ in range(10)]
            for place, client in enumerate(lost):
                client.sendall(produced(b"%d/%d/0" % (turn, place), (100 * turn + place, 0, 0)))
            for number, client in enumerate(others):
                client.sendall(produced(b"%d/%d/2" % (turn, number), (100 * turn + 50 + number, 0, 7)))
            for client in lost:
                client.close()
            again = [connect(broker.bootstrap) for _ in lost]
            for place, client in enumerate(again):
                for sequence in range(2):
                    value = b"%d/%d/%d" % (turn, place, sequence)
                    client.sendall(produced(value, (100 * turn + place, 0, sequence)))
            for client in again:
                (_, first_error, first), (_, error, offset) = answer(client), answer(client)
                assert (first_error, error) == (0, 0)
                assert first < offset
                client.close()
            for client in others:
                assert answer(client)[1] == 0
        values = Counter(record.value for record in broker.records("t"))
        assert len(values) == 10 * (2 * 10 + CLIENTS)
        assert set(values.values()) == {1}
    assert joined["records"] > 0


def authenticated(broker: Broker, user: str) -> socket.socket:
    """A connection of this user to a listener with SASL."""
    client = connect(broker.bootstrap)
    client.sendall(request_frame(17, 1, text("PLAIN")))
    assert read_frame(client)[4:6] == b"\0\0"
    token = f"\0{user}\0{PASSWORDS[user]}".encode()
    client.sendall(request_frame(36, 1, struct.pack(">i", len(token)) + token))
    assert read_frame(client)[4:6] == b"\0\0"
    return client


def may_write(user: str, topic: str = "t") -> AclBinding:
    entry = AccessControlEntry(f"User:{user}", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
    return AclBinding(ResourcePattern(AclResourceType.TOPIC, topic), entry)


def authorizer_of(broker: Broker) -> Any:
    return broker.server.apis._authorizer


def exchange(clients: list[tuple[str, socket.socket]], turn: int) -> dict[str, set[int]]:
    """Send three requests over each connection, and return the error codes by user."""
    for place, (user, client) in enumerate(clients):
        client.sendall(b"".join(numbered(one(f"{turn}/{user}/{place}/{n}".encode()), n) for n in range(3)))
    codes: dict[str, set[int]] = {}
    for user, client in clients:
        answers = [answer(client) for _ in range(3)]
        assert [correlation_id for correlation_id, _, _ in answers] == [0, 1, 2]
        codes.setdefault(user, set()).update(code for _, code, _ in answers)
    return codes


def test_authenticated_clients_are_appended_together_as_their_acls_permit(joined: Counter[str], way: str) -> None:
    denied, fine = {int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}, {int(ErrorCode.NONE)}
    with Broker(["t"], sasl=PASSWORDS, config=AUTHORIZER) as broker, ExitStack() as stack:
        clients = [(user, stack.enter_context(authenticated(broker, user))) for _ in range(15) for user in PASSWORDS]
        assert exchange(clients, 0) == {"anna": denied, "ben": denied}
        assert not broker.records("t")
        broker._call(authorizer_of(broker).create([may_write("anna"), may_write("ben", "other")]))
        for turn in range(1, 4):
            assert exchange(clients, turn) == {"anna": fine, "ben": denied}
        broker._call(authorizer_of(broker).create([may_write("ben")]))
        broker._call(authorizer_of(broker).delete([may_write("anna")]))
        for turn in range(4, 7):
            assert exchange(clients, turn) == {"anna": denied, "ben": fine}
        values = sorted(record.value or b"" for record in broker.records("t"))
        assert values == sorted(
            f"{turn}/{user}/{place}/{number}".encode()
            for turn in range(1, 7)
            for place, (user, _) in enumerate(clients)
            for number in range(3)
            if user == ("anna" if turn < 4 else "ben")
        )
    assert bool(joined["records"]) is (way == "together")


def test_clients_that_are_not_authenticated_are_disconnected() -> None:
    with Broker(["t"], sasl=PASSWORDS) as broker, ExitStack() as stack:
        known = [stack.enter_context(authenticated(broker, "anna")) for _ in range(15)]
        strangers = clients_of(broker, stack, 15)
        for client, stranger in zip(known, strangers, strict=True):
            stranger.sendall(one(b"stranger") * 2)
            client.sendall(one(b"anna") * 2)
        for client in known:
            assert [answer(client)[1] for _ in range(2)] == [0, 0]
        for stranger in strangers:
            assert is_closed(stranger)
        assert Counter(record.value for record in broker.records("t")) == {b"anna": 30}


def is_closed(client: socket.socket) -> bool:
    """Receive until the broker closes the connection; the socket has a timeout."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def test_clients_whose_session_has_expired_are_disconnected(joined: Counter[str]) -> None:
    config = {"connections.max.reauth.ms": "1000"}
    with Broker(["t"], sasl=PASSWORDS, config=config) as broker, ExitStack() as stack:
        clients = [stack.enter_context(authenticated(broker, "anna")) for _ in range(15)]
        sent, deadline = 0, time.monotonic() + 60
        while clients:
            assert time.monotonic() < deadline
            still_open = []
            for client in clients:
                try:
                    client.sendall(one(b"x") * 2)
                    sent += 2
                    assert [answer(client)[1] for _ in range(2)] == [0, 0]
                    still_open.append(client)
                except (ConnectionError, EOFError):
                    continue
            clients = still_open
        assert 0 < len(broker.records("t")) <= sent
    assert joined["records"] > 0


def of_client(number: int, frame: bytes) -> bytes:
    """The same request with another client id of the same length."""
    return frame[:14] + client_id(number).encode() + frame[19:]


def client_id(number: int) -> str:
    return f"c{number:04}"


def set_quotas(broker: Broker, **quotas: float) -> None:
    """Set quotas of every client id."""
    managers = broker.server.apis._joint_produce._quotas
    broker._call(managers.changed({CLIENT_ID: None}, quotas))


def throttled_answer(client: socket.socket) -> tuple[int, int]:
    """Error code and throttle time in ms of the next response to Produce version 7."""
    frame = exactly(client, int.from_bytes(exactly(client, 4), "big"))
    name_size = struct.unpack_from(">h", frame, 8)[0]
    return struct.unpack_from(">h", frame, 18 + name_size)[0], int.from_bytes(frame[-4:], "big")


@pytest.mark.parametrize(("acks", "durability"), [(1, "disk"), (-1, "page-cache"), (-1, "disk")])
def test_every_request_is_charged_once(
    joined: Counter[str], way: str, acks: int, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: dict[ClientQuotaManager, Counter[str]] = {}
    record = ClientQuotaManager.record

    def count(self: ClientQuotaManager, user: str, client_id: str, value: float, now: float) -> float:
        assert user == "ANONYMOUS"
        assert value > 0
        charged.setdefault(self, Counter())[client_id] += 1
        if self is produce:
            sizes[client_id] += int(value)
        return record(self, user, client_id, value, now)

    wrong = bytearray(one(b"wrong", acks=acks))
    wrong[-1] ^= 1
    frames = [
        one(b"x", acks=acks),
        one(b"more", acks=acks),
        one(b"x", "missing", acks=acks),
        bytes(wrong),
        produced(b"x", (5, 0, 3), acks=acks),
        produced(b"x", (5, 0, 9), acks=acks),
        one(b"x", index=9, acks=acks),
    ]
    sizes: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    config = {"acks.all.durability": durability, "auto.create.topics.enable": "false"}
    with Broker(["t"], config=config) as broker, ExitStack() as stack:
        produce = broker.server.apis._joint_produce._quotas.produce
        monkeypatch.setattr(ClientQuotaManager, "record", count)
        set_quotas(broker, **{PRODUCER_BYTE_RATE: 1e12, REQUEST_PERCENTAGE: 1e9})
        clients, rng = clients_of(broker, stack), random.Random(1)
        for _ in range(8):
            for number, client in enumerate(clients):
                chosen = rng.choices(frames, [20, 10, 1, 1, 2, 1, 1], k=3)
                client.sendall(b"".join(of_client(number, frame) for frame in chosen))
                requests[client_id(number)] += 3
                expected[client_id(number)] += sum(len(frame) - 4 for frame in chosen)
            for client in clients:
                assert all(throttled_answer(client)[1] == 0 for _ in range(3))
        assert sizes == expected
        assert charged == {produce: requests, broker.server.apis._joint_produce._quotas.request: requests}
    assert (joined["records"] > 50) is (way == "together")


@pytest.mark.parametrize(("acks", "durability"), [(1, "disk"), (-1, "disk")])
def test_a_client_over_its_quota_is_throttled(joined: Counter[str], way: str, acks: int, durability: str) -> None:
    frame = one(b"x" * 100, acks=acks)
    with Broker(["t"], config={"acks.all.durability": durability}) as broker, ExitStack() as stack:
        # The rate of one request over the ten seconds of the window is a twentieth above the limit.
        set_quotas(broker, **{PRODUCER_BYTE_RATE: (len(frame) - 4) / 10 / 1.05})
        clients, began = clients_of(broker, stack, 20), time.monotonic()
        for client in clients:
            client.sendall(metadata_request("t"))
            read_frame(client)
        with one_turn(broker):
            for number, client in enumerate(clients):
                client.sendall(of_client(number, frame) * 2)
        waits = [throttled_answer(client) for client in clients]
        assert {code for code, _ in waits} == {0}
        assert all(490 <= wait <= 510 for _, wait in waits)
        for client in clients:
            assert throttled_answer(client)[1] > 5000
            assert time.monotonic() - began > 0.49, "the connection was muted after its first response"
        assert len(broker.records("t")) == 40
        throttled = broker.server.apis._joint_produce._quotas.throttled_requests
        assert throttled == {"Produce": 40}
    assert bool(joined["records"]) is (way == "together")


@pytest.mark.parametrize(("acks", "durability"), [(1, "disk"), (-1, "disk")])
def test_requests_are_counted_and_timed(joined: Counter[str], way: str, acks: int, durability: str) -> None:
    config = {"metrics.listeners": "127.0.0.1:0", "acks.all.durability": durability}
    with Broker(["t"], config=config) as broker, ExitStack() as stack:
        assert broker.server.metrics is not None
        meters = broker.server.metrics.requests
        # Each request counts as a slow one.
        broker._on_loop(lambda: setattr(meters.slow.of("Produce", ApiKey.PRODUCE).watched, "floor", 0.0))
        clients = clients_of(broker, stack, 20)
        for turn in range(1, 11):
            for number, client in enumerate(clients):
                client.sendall(of_client(number, one(b"x", acks=acks)) * 2 + of_client(number, one(b"y", index=7)))
            for client in clients:
                assert [answer(client)[1] for _ in range(3)] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert meters.requests["Produce", 7] == 60 * turn
        total = meters.times["Produce"].total
        assert 0 < total.count <= 600
        assert total.total > 0
        slow = [request for name, request in meters.slow.slowest() if name == "Produce"]
        assert slow
        assert {request.client_id for request in slow} <= {client_id(number) for number in range(20)}
        assert {(request.version, request.principal, request.host) for request in slow} == {
            (7, "ANONYMOUS", "127.0.0.1")
        }
        broker._on_loop(lambda: broker.server.apis.stop_measuring(meters))
        for client in clients:
            client.sendall(one(b"x", acks=acks) * 2)
        for client in clients:
            assert [answer(client)[1] for _ in range(2)] == [0, 0]
        assert meters.requests["Produce", 7] == 600
    assert bool(joined["records"]) is (way == "together")


def test_an_error_in_another_partition_does_not_end_joint_appends(joined: Counter[str]) -> None:
    config = {"auto.create.topics.enable": "false"}
    with Broker(["t"], config=config) as broker, ExitStack() as stack:
        clients = clients_of(broker, stack)
        for client in clients:
            client.sendall(one(b"x", "missing"))
        assert {answer(client)[1] for client in clients} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for _ in range(3):
            for client in clients:
                client.sendall(one(b"x") * 2)
            assert {answer(client)[1] for client in clients for _ in range(2)} == {0}
        assert len(broker.records("t")) == 6 * CLIENTS
    assert joined["records"] > 0
