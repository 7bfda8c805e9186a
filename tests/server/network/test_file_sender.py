"""Large answers to Fetch, sent from the files: what slow, impatient and pipelining readers see of them."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.frames import framed
from tests.server_process import wait_until

from barnabas import Broker
from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.server.apis.handlers.fetch import FOLLOWER_SEND_BUFFER_BYTES
from barnabas.server.network import connection
from barnabas.server.network.output import FileSender
from barnabas.server.network.socket_server import LAST_RESPONSES_SECONDS
from barnabas.storage.filesystem import FileSlice

PARTITIONS, BATCHES, VALUE_BYTES = 3, 6, 500_000
DEADLINE_S = 60.0
DEFAULT_SEND_BUFFER = 102_400
SMALL_WINDOW = 1 << 18
"""With the buffer on the other side less than an answer takes."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data_dir=str(tmp_path_factory.mktemp("data")), topics={"big": PARTITIONS}) as broker:
        with connect(broker) as stream:
            for index in range(PARTITIONS * BATCHES):
                stream.sendall(produce_request(index % PARTITIONS, batch_of(index)))
                assert answer_from(stream)[4 + 4 + 4 + 5 + 4 + 4 :][:2] == b"\0\0", "produced"
        yield broker


def connect(broker: Broker) -> socket.socket:
    host, port = broker.bootstrap.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


def batch_of(index: int, size: int = VALUE_BYTES) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(b"%d" % index, bytes([index + 1]) * size, [], int(time.time() * 1000))
    return bytes(builder.build())


def request_frame(key: int, version: int, body: bytes) -> bytes:
    return framed(struct.pack(">hhih", key, version, 7, -1) + body)


def produce_request(partition: int, records: bytes) -> bytes:
    lead = struct.pack(">hhiih3siii", -1, 1, 5000, 1, 3, b"big", 1, partition, len(records))
    return request_frame(0, 7, lead + records)


def fetch_request(*partitions: int, max_bytes: int = 64 << 20) -> bytes:
    """Fetch v4 from offset 0 of each partition, from each so much at most."""
    body = struct.pack(">iiiibih3si", -1, 500, 1, 64 << 20, 0, 1, 3, b"big", len(partitions))
    return request_frame(1, 4, body + b"".join(struct.pack(">iqi", index, 0, max_bytes) for index in partitions))


def exactly(stream: socket.socket, size: int, step: int = 1 << 20) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = stream.recv(min(step, size - len(data)))
        assert piece, "the connection was closed in the middle"
        data += piece
    return bytes(data)


def answer_from(stream: socket.socket, step: int = 1 << 20) -> bytes:
    return exactly(stream, struct.unpack(">i", exactly(stream, 4))[0], step)


def fetched(answer: bytes) -> dict[int, list[int]]:
    """For each partition the first bytes of the values of its records."""
    found: dict[int, list[int]] = {}
    place = 4 + 4 + 4 + 2 + 3
    (count,) = struct.unpack_from(">i", answer, place)
    place += 4
    for _ in range(count):
        index, error, _mark, _stable, aborted, size = struct.unpack_from(">ihqqii", answer, place)
        assert (error, aborted) == (0, -1)
        place += 30
        records = answer[place : place + size]
        place += size
        found[index] = [record.value[0] for batch in iter_batches(records) for record in batch.records()]
    assert place == len(answer)
    return found


def values_of(partition: int) -> list[int]:
    return [number * PARTITIONS + partition + 1 for number in range(BATCHES)]


def test_an_answer_with_several_files(broker: Broker) -> None:
    with connect(broker) as stream:
        stream.sendall(fetch_request(0, 1, 2))
        assert fetched(answer_from(stream)) == {index: values_of(index) for index in range(PARTITIONS)}


def test_the_bytes_before_the_first_records_are_one_part(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part takes a system call."""
    sent: list[list[bool]] = []

    def note(stream: Any, parts: list[Any], *rest: Any) -> FileSender:
        sent.append([isinstance(part, FileSlice) for part in parts])
        return FileSender(stream, parts, *rest)

    monkeypatch.setattr(connection, "FileSender", note)
    with connect(broker) as stream:
        stream.sendall(fetch_request(0, 1))
        assert fetched(answer_from(stream)) == {index: values_of(index) for index in (0, 1)}
    assert sent == [[False, True, False, True]]


def test_pipelined_requests_are_answered_in_order(broker: Broker) -> None:
    with connect(broker) as stream:
        stream.sendall(fetch_request(1) + fetch_request(2, max_bytes=100) + fetch_request(0))
        assert fetched(answer_from(stream)) == {1: values_of(1)}
        assert fetched(answer_from(stream)) == {2: values_of(2)[:1]}
        assert fetched(answer_from(stream)) == {0: values_of(0)}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("size", [None, 60_000, -1])
def test_send_buffers_have_the_size_of_the_setting(size: int | None) -> None:
    with socket.socket() as untouched:
        by_itself = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    settings = {} if size is None else {"socket.send.buffer.bytes": str(size)}
    with Broker(config=settings) as broker, connect(broker) as stream:
        stream.sendall(request_frame(18, 0, b""))
        answer_from(stream)
        found = send_buffer_of_peer(stream)
    if size == -1:
        assert found not in {2 * DEFAULT_SEND_BUFFER, 2 * 60_000}
        assert found >= by_itself
    else:
        assert found == 2 * (size or DEFAULT_SEND_BUFFER), "Linux doubles what it is asked for, for its own bookkeeping"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("replica_id", "size"), [(-1, DEFAULT_SEND_BUFFER), (2, FOLLOWER_SEND_BUFFER_BYTES)])
def test_the_fetch_session_of_a_follower_enlarges_the_send_buffer(broker: Broker, replica_id: int, size: int) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchTopic(topic="big", partitions=[partition])]
    request = FetchRequest(replica_id=replica_id, session_epoch=0, max_bytes=1, topics=topics)
    with connect(broker) as stream:
        stream.sendall(request_frame(1, 11, encode_request(request, 11)))
        answer = answer_from(stream)
        found = send_buffer_of_peer(stream)
    assert struct.unpack_from(">i", answer, 10)[0] > 0, "a session"
    limit = int(Path("/proc/sys/net/core/wmem_max").read_text())
    assert found == 2 * min(size, limit)


def open_files() -> Iterator[tuple[int, str]]:
    """Numbers and paths of those of this process, while the broker in it opens others and closes them."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield int(entry.name), str(entry.readlink())


def send_buffer_of_peer(stream: socket.socket) -> int:
    """SO_SNDBUF of the socket in this process that `stream` is connected to."""
    for number, path in open_files():
        if not path.startswith("socket:"):
            continue
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as other:
            if other.getpeername() == stream.getsockname():
                return other.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    raise AssertionError("the other end is not in this process")


def test_a_slow_reader_gets_everything_and_holds_nobody_up(broker: Broker) -> None:
    with connect(broker) as slow, connect(broker) as quick:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
        slow.sendall(fetch_request(0, 1, 2))
        first = exactly(slow, 4)
        quick.sendall(fetch_request(0))
        assert fetched(answer_from(quick)) == {0: values_of(0)}
        rest = exactly(slow, struct.unpack(">i", first)[0], step=50_000)
        assert fetched(rest) == {index: values_of(index) for index in range(PARTITIONS)}


def test_a_reader_that_goes_away_leaves_no_descriptor_behind(broker: Broker) -> None:
    def sent_files() -> int:
        return sum("/big-" in path and path.endswith(".log") for _, path in open_files())

    before = sent_files()
    for _ in range(20):
        with connect(broker) as stream:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
            stream.sendall(fetch_request(0, 1, 2))
            exactly(stream, 100)
    wait_until(lambda: sent_files() <= before, timeout_s=DEADLINE_S, what="all files are closed")


def test_a_segment_deleted_while_it_is_sent_still_arrives(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path), topics={"big": 1}) as broker, connect(broker) as stream:
        for index in range(12):
            stream.sendall(produce_request(0, batch_of(index)))
            answer_from(stream)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
        stream.sendall(fetch_request(0))
        size = struct.unpack(">i", exactly(stream, 4))[0]
        broker.delete_topic("big")
        assert fetched(exactly(stream, size)) == {0: [index + 1 for index in range(12)]}


def test_a_client_that_pipelines_and_does_not_read_has_no_file_read_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer before, of batches too small to be lent, fills the buffers; the file waits until it is through."""

    def refuse(_: FileSlice) -> bytes:
        raise AssertionError("a file was read into memory")

    monkeypatch.setattr(FileSlice, "read", refuse)
    everything = [index + 1 for index in range(8)]
    with Broker(data_dir=str(tmp_path), topics={"big": 8}) as broker, connect(broker) as stream:
        for partition in range(8):
            stream.sendall(produce_request(partition, batch_of(partition, 60_000)))
            answer_from(stream)
        for index in range(1, 8):
            stream.sendall(produce_request(0, batch_of(index)))
            answer_from(stream)
        few = {partition: [partition + 1] for partition in range(8)}
        for _ in range(3):
            stream.sendall(fetch_request(*range(8), max_bytes=61_000) + fetch_request(0))
        for _ in range(3):
            assert fetched(answer_from(stream)) == few
            assert fetched(answer_from(stream)) == {0: everything}


@pytest.mark.parametrize("reads", [True, False])
def test_a_stop_waits_for_clients_to_take_their_answers_but_not_for_long(tmp_path: Path, reads: bool) -> None:
    broker = Broker(data_dir=str(tmp_path), topics={"big": 8}).__enter__()
    stopping = threading.Thread(target=broker.__exit__)
    with connect(broker) as stream:
        for partition in range(8):
            stream.sendall(produce_request(partition, batch_of(partition, 60_000)))
            answer_from(stream)
        stream.sendall(fetch_request(*range(8), max_bytes=61_000))
        rest = struct.unpack(">i", exactly(stream, 4))[0]
        stopping.start()
        if reads:
            assert fetched(exactly(stream, rest, step=20_000)) == {index: [index + 1] for index in range(8)}
        stopping.join(10 * LAST_RESPONSES_SECONDS)
        assert not stopping.is_alive()


def test_where_the_system_cannot_send_files_they_are_copied_in_pieces(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "not that file")

    monkeypatch.setattr(os, "sendfile", refuse)
    with connect(broker) as stream:
        stream.sendall(fetch_request(0, 1))
        assert fetched(answer_from(stream)) == {index: values_of(index) for index in (0, 1)}


def test_a_file_cut_while_it_is_sent_ends_that_connection_only(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path), topics={"big": 2}) as broker, connect(broker) as stream:
        for index in range(2 * BATCHES):
            stream.sendall(produce_request(index % 2, batch_of(index)))
            answer_from(stream)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
        stream.sendall(fetch_request(0, 1))
        exactly(stream, 100)
        for path in tmp_path.rglob("big-*/*.log"):
            os.truncate(path, 1000)
        with pytest.raises((AssertionError, ConnectionError)):
            exactly(stream, 2 * BATCHES * VALUE_BYTES)
        with connect(broker) as other:
            other.sendall(request_frame(18, 0, b""))
            assert answer_from(other)[4:6] == b"\0\0", "answers ApiVersions"
