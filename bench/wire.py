"""Encoded requests, and the positions of the error codes in responses, for the loads over plain sockets.

Requests are encoded once and sent again and again, and all responses of a load have the same size. It costs almost
nothing to count and check them, so the server limits the rate.
"""

import random
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence

import crc32c

CLIENT_ID = b"bench"
PARTITION_RESPONSE_SIZE = 30
RECEIVE_SIZE = 1 << 16
SO_TIMESTAMPNS = 35
"""The option that makes Linux stamp bytes with their arrival time (socket(7)). Old versions of `socket` lack it."""
_STAMP = struct.Struct("@ll")
_CRC, _CRC_AT = struct.Struct(">I"), 17
_PRODUCER, _PRODUCER_AT = struct.Struct(">qhi"), 43
"""Producer id, epoch and first sequence of a batch."""


def varint(number: int) -> bytes:
    """Encode a number as a zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def one_record_batch(value: bytes, timestamp_ms: int) -> bytes:
    """Return a v2 batch with one record without a key."""
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    records = varint(len(record)) + record
    checked = struct.pack(">hiqqqhii", 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c.crc32c(checked)) + checked


def small_batch() -> bytes:
    """Return a batch with one record of 100 bytes and the current time."""
    return one_record_batch(b"x" * 100, int(time.time() * 1000))


def request_frame(api_key: int, version: int, body: bytes, client_id: bytes = CLIENT_ID) -> bytes:
    """Return a whole request frame with header version 1."""
    frame = struct.pack(">hhih", api_key, version, 7, len(client_id)) + client_id + body
    return struct.pack(">i", len(frame)) + frame


def text(value: str) -> bytes:
    """Encode a string with its length before it."""
    return struct.pack(">h", len(value.encode())) + value.encode()


def produce_request(topic: str, batches: Sequence[tuple[int, bytes]], acks: int = 1) -> bytes:
    """Return a Produce v7 request to one topic; `batches` holds (partition, batch)."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + text(topic) + struct.pack(">i", len(batches))
    return request_frame(
        0, 7, body + b"".join(struct.pack(">ii", index, len(batch)) + batch for index, batch in batches)
    )


class RepeatedRequest:
    """One produce request, sent again and again."""

    def __init__(self, request: bytes, max_count: int) -> None:
        self._size = len(request)
        self._bytes = memoryview(request * max_count)

    def take(self, count: int) -> memoryview:
        """Return the bytes of `count` requests."""
        return self._bytes[: count * self._size]


class IdempotentRequests:
    """The requests of one idempotent producer, which differ in the sequence of their batch of one record."""

    def __init__(self, topic: str, producer_id: int, acks: int = 1) -> None:
        batch = small_batch()
        self._request = bytearray(produce_request(topic, [(0, batch)], acks))
        self._batch = memoryview(self._request)[-len(batch) :]
        self._producer_id = producer_id
        self._sequence = 0

    def take(self, count: int) -> bytearray:
        """Return the bytes of the next `count` requests."""
        requests = bytearray()
        for _ in range(count):
            _PRODUCER.pack_into(self._batch, _PRODUCER_AT, self._producer_id, 0, self._sequence)
            _CRC.pack_into(self._batch, _CRC_AT, crc32c.crc32c(self._batch[_CRC_AT + _CRC.size :]))
            self._sequence = (self._sequence + 1) & 0x7FFFFFFF
            requests += self._request
        return requests


def metadata_request(topic: str) -> bytes:
    """Return a Metadata v1 request of one topic."""
    return request_frame(3, 1, struct.pack(">i", 1) + text(topic))


def fetch_request(topic: str, offset: int, max_bytes: int) -> bytes:
    """Return a Fetch v4 request of partition 0 of one topic, which waits up to half a second for a first byte."""
    lead = struct.pack(">iiiibi", -1, 500, 1, max_bytes, 0, 1)
    return request_frame(1, 4, lead + text(topic) + struct.pack(">iiqi", 1, 0, offset, max_bytes))


def session_fetch_request(topic: str, index: int, offset: int, session: tuple[int, int], wait_ms: int) -> bytes:
    """Return a Fetch v11 request of one partition in a fetch session (id, epoch), which waits for a first byte."""
    lead = struct.pack(">iiiibiii", -1, wait_ms, 1, 1 << 20, 0, *session, 1)
    partition = struct.pack(">iiiqqi", 1, index, -1, offset, -1, 1 << 20)
    return request_frame(1, 11, lead + text(topic) + partition + struct.pack(">i", 0) + text(""))


def connect(bootstrap: str) -> socket.socket:
    """Open a connection without Nagle's delay."""
    host, port = bootstrap.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive(connection: socket.socket, size: int = RECEIVE_SIZE) -> bytes:
    """Receive at least one byte. Raises an error if the connection is closed."""
    data = connection.recv(size)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data


def enable_arrival_timestamps(connection: socket.socket) -> None:
    """Make the kernel report arrival times to `receive_with_time`, if it supports this."""
    if sys.platform == "linux":
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


def receive_with_time(connection: socket.socket) -> tuple[bytes, float]:
    """Receive as `receive` does, and return the bytes with the wall-clock arrival time of the last byte."""
    data, ancillary, _, _ = connection.recvmsg(RECEIVE_SIZE, socket.CMSG_SPACE(_STAMP.size))
    if not data:
        raise ConnectionError("the server closed the connection")
    for level, kind, data_bytes in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = _STAMP.unpack(data_bytes)
            return data, float(seconds + nanoseconds / 1e9)
    return data, time.time()


def read_frame(connection: socket.socket) -> bytes:
    """Read one whole response, and return it without its length."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        data += receive(connection, 1 << 18)
    return data[4:]


class ResponseCounter:
    """A counter of Produce v7 responses of equal size, which checks every error code."""

    def __init__(self, topic: str, partitions: int = 1) -> None:
        first_error = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
        self.size = first_error - 4 + PARTITION_RESPONSE_SIZE * partitions + 4
        self.error_positions = [first_error + PARTITION_RESPONSE_SIZE * index for index in range(partitions)]
        self._rest = b""

    def add(self, data: bytes) -> int:
        """Return the number of responses that these bytes complete. Raises RuntimeError for an error code."""
        data = self._rest + data if self._rest else data
        count = len(data) // self.size
        whole = count * self.size
        frames, self._rest = data[:whole], data[whole:]
        if count and struct.unpack_from(">i", frames)[0] != self.size - 4:
            raise RuntimeError(f"an unexpected response of {struct.unpack_from('>i', frames)[0]} bytes")
        for position in self.error_positions:
            if any(frames[position :: self.size]) or any(frames[position + 1 :: self.size]):
                raise RuntimeError(f"a response with error {struct.unpack_from('>h', frames, position)[0]}")
        return count


def send_until_accepted(
    bootstrap: str, requests: Sequence[bytes], responses: ResponseCounter, *, timeout_s: float = 60
) -> None:
    """Send each request until its response has no error.

    Kafka's metadata names a leader before that broker accepts records for the partition, and the first request to a
    partition opens its files. Neither must be measured.
    """
    deadline = time.monotonic() + timeout_s
    with connect(bootstrap) as connection:
        for request in requests:
            while True:
                connection.sendall(request)
                frame = b"\0" * 4 + read_frame(connection)
                if not any(any(frame[position : position + 2]) for position in responses.error_positions):
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError(f"still an error in the response after {timeout_s} s: {frame[:200]!r}")
                time.sleep(0.01)


class Cycle:
    """A ring of equally long requests in one random order, which are taken several at a time without copying."""

    def __init__(self, requests: Sequence[bytes], max_count: int) -> None:
        self._size = len(requests[0])
        if any(len(request) != self._size for request in requests):
            raise ValueError("the requests of a cycle must have the same size")
        order = list(requests)
        random.Random(7).shuffle(order)
        self._length = len(order)
        self._max_count = max_count
        repeated = order * (1 + -(-max_count // len(order)))
        self._bytes = memoryview(b"".join(repeated))
        self._next = 0

    def take(self, count: int) -> Iterator[memoryview]:
        """Yield the next `count` requests in pieces, to be sent one after the other."""
        while count:
            part = min(count, self._max_count)
            begin = self._next * self._size
            yield self._bytes[begin : begin + part * self._size]
            self._next = (self._next + part) % self._length
            count -= part
