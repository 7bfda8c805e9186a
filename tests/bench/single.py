"""Single-record produce requests over a plain socket: as many a second as go, or a steady rate with latencies.

Requests are encoded once (Produce v7, acks 1, one 100-byte record) and sent again and again, 64 in flight; answers have
one size, so counting and checking them costs next to nothing and the server is what is measured.
"""

import select
import selectors
import socket
import struct
import time
from contextlib import ExitStack

import crc32c

IN_FLIGHT = 64
CLIENT_ID = b"bench"


def varint(number: int) -> bytes:
    """A zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def one_record_batch(value: bytes, timestamp_ms: int) -> bytes:
    """A v2 batch with one record without key."""
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    records = varint(len(record)) + record
    checked = struct.pack(">hiqqqhii", 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c.crc32c(checked)) + checked


def produce_request(topic: str, partition: int, batch: bytes, correlation_id: int) -> bytes:
    """A whole Produce v7 frame with acks 1."""
    name = topic.encode()
    header = struct.pack(">hhih", 0, 7, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    lead = struct.pack(">hhii", -1, 1, 30_000, 1) + struct.pack(">h", len(name)) + name
    body = header + lead + struct.pack(">iii", 1, partition, len(batch)) + batch
    return struct.pack(">i", len(body)) + body


def response_layout(topic: str) -> tuple[int, int]:
    """Size of the answer's frame and the place of its error code in it."""
    error_at = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    return error_at + 2 + 8 + 8 + 8 + 4, error_at


class Answers:
    """Cuts equal frames out of what was received and looks at every error code."""

    def __init__(self, topic: str) -> None:
        self.size, self._error_at = response_layout(topic)
        self._rest = b""

    def take(self, data: bytes) -> int:
        """How many whole answers came; an error code in any of them raises."""
        data = self._rest + data if self._rest else data
        count = len(data) // self.size
        whole = count * self.size
        frames, self._rest = data[:whole], data[whole:]
        if count and struct.unpack_from(">i", frames)[0] != self.size - 4:
            raise RuntimeError(f"an unexpected answer of {struct.unpack_from('>i', frames)[0]} bytes")
        if any(frames[self._error_at :: self.size]) or any(frames[self._error_at + 1 :: self.size]):
            raise RuntimeError(f"an answer with error {struct.unpack_from('>h', frames, self._error_at)[0]}")
        return count


def connect(bootstrap: str) -> socket.socket:
    """A connection without Nagle's delay."""
    host, port = bootstrap.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def requests_per_second(bootstrap: str, topic: str, *, seconds: float, in_flight: int = IN_FLIGHT) -> dict[str, float]:
    """Keep `in_flight` requests under way on one connection."""
    batch = one_record_batch(b"x" * 100, int(time.time() * 1000))
    request = produce_request(topic, 0, batch, 7)
    blob = memoryview(request * in_flight)
    answers = Answers(topic)
    with connect(bootstrap) as connection:
        connection.sendall(blob)
        done = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            data = connection.recv(1 << 16)
            if not data:
                raise RuntimeError("the server closed the connection")
            count = answers.take(data)
            done += count
            connection.sendall(blob[: count * len(request)])
        elapsed = time.perf_counter() - begin
        outstanding = in_flight
        while outstanding:
            outstanding -= answers.take(connection.recv(1 << 16))
    return {"requests": done, "seconds": elapsed, "requests_per_s": done / elapsed}


def latencies(bootstrap: str, topic: str, *, seconds: float, rate: int = 1000) -> dict[str, float]:
    """Send `rate` requests a second, evenly and whether or not answers came; milliseconds from sending to answer."""
    batch = one_record_batch(b"x" * 100, int(time.time() * 1000))
    request = produce_request(topic, 0, batch, 7)
    answers = Answers(topic)
    total = int(seconds * rate)
    sent: list[float] = []
    spent: list[float] = []
    with connect(bootstrap) as connection:
        begin = time.perf_counter() + 0.01
        while len(spent) < total:
            pause = begin + len(sent) / rate - time.perf_counter() if len(sent) < total else 5.0
            if pause <= 0:
                sent.append(time.perf_counter())
                connection.sendall(request)
                continue
            if select.select([connection], [], [], pause)[0]:
                data = connection.recv(1 << 16)
                now = time.perf_counter()
                if not data:
                    raise RuntimeError("the server closed the connection")
                for _ in range(answers.take(data)):
                    spent.append((now - sent[len(spent)]) * 1000)
            elif len(sent) == total:
                raise RuntimeError(f"{total - len(spent)} answers did not come")
    # The first tenth warms up connection, caches and (on a JVM) the compiler.
    steady = sorted(spent[total // 10 :])
    return {
        "p50_ms": steady[len(steady) // 2],
        "p99_ms": steady[int(len(steady) * 0.99)],
        "p999_ms": steady[int(len(steady) * 0.999)],
        "max_ms": steady[-1],
    }


def many_connections(bootstrap: str, topic: str, *, seconds: float, connections: int) -> dict[str, float]:
    """As many requests a second as go over `connections` connections, 64 (or one each) under way in all."""
    each = max(1, IN_FLIGHT // connections)
    request = produce_request(topic, 0, one_record_batch(b"x" * 100, int(time.time() * 1000)), 7)
    blob = memoryview(request * each)
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(connections):
            selector.register(stack.enter_context(connect(bootstrap)), selectors.EVENT_READ, Answers(topic))
        for key in selector.get_map().values():
            key.fileobj.sendall(blob)  # type: ignore[union-attr]
        done = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for key, _ in selector.select(1):
                connection, answers = key.fileobj, key.data
                assert isinstance(connection, socket.socket)
                data = connection.recv(1 << 16)
                if not data:
                    raise RuntimeError("the server closed a connection")
                count = answers.take(data)
                done += count
                connection.sendall(blob[: count * len(request)])
        elapsed = time.perf_counter() - begin
    return {"requests": done, "seconds": elapsed, "requests_per_s": done / elapsed}


def metadata_request(topic: str) -> bytes:
    """A whole Metadata v1 frame that names one topic."""
    name = topic.encode()
    body = struct.pack(">hhih", 3, 1, 7, len(CLIENT_ID)) + CLIENT_ID + struct.pack(">ih", 1, len(name)) + name
    return struct.pack(">i", len(body)) + body


def read_frame(connection: socket.socket) -> bytes:
    """One whole answer without its length."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        more = connection.recv(1 << 18)
        if not more:
            raise ConnectionError("the server closed the connection")
        data += more
    return data[4:]


def metadata(bootstrap: str, topic: str, *, seconds: float) -> dict[str, float]:
    """One Metadata request after the other for one topic: milliseconds each."""
    request = metadata_request(topic)
    spent = []
    with connect(bootstrap) as connection:
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            asked = time.perf_counter()
            connection.sendall(request)
            size = len(read_frame(connection))
            spent.append((time.perf_counter() - asked) * 1000)
    spent.sort()
    return {"requests": len(spent), "answer_bytes": size, "p50_ms": spent[len(spent) // 2]}


def first_acknowledgement(bootstrap: str, topic: str, *, timeout_s: float = 60) -> None:
    """Return as soon as one record sent to a topic that makes itself is acknowledged."""
    deadline = time.monotonic() + timeout_s
    error_at = response_layout(topic)[1] - 4
    while time.monotonic() < deadline:
        try:
            with connect(bootstrap) as connection:
                while time.monotonic() < deadline:
                    connection.sendall(metadata_request(topic))
                    read_frame(connection)
                    batch = one_record_batch(b"x" * 100, int(time.time() * 1000))
                    connection.sendall(produce_request(topic, 0, batch, 7))
                    if struct.unpack_from(">h", read_frame(connection), error_at)[0] == 0:
                        return
        except OSError:
            time.sleep(0.002)
    raise TimeoutError(f"no record was acknowledged within {timeout_s} s")
