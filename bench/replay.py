"""Whole batches over a plain socket: produce requests built in advance, and fetches whose records are not decoded.

librdkafka and Java spend more time on a compressed record than a broker does, which hides differences between brokers.
Here batches are built and compressed before the clock starts, so that the server limits the rate.
"""

import socket
import struct
import time
from collections import deque

from bench.payloads import payloads
from bench.wire import Cycle, ResponseCounter, connect, fetch_request, produce_request, receive, send_until_accepted

from barnabas.protocol.compression import Compression
from barnabas.protocol.record_batch_builder import RecordBatchBuilder

IN_FLIGHT = 5
"""The default of producers for `max.in.flight.requests.per.connection`."""

MAX_BYTES = 4 << 20
FETCH_LEAD = struct.Struct(">ihqqi")
"""The head of a partition in a response to Fetch 4: index, error, high watermark, last stable offset, aborted count."""


def batch_of(size: int, batch_bytes: int, codec: str, compressible: bool) -> tuple[bytes, int]:
    """Return a batch of records of `size` bytes, `batch_bytes` before compression, and the number of its records."""
    count = batch_bytes // size
    builder = RecordBatchBuilder(codec=Compression[codec.upper()])
    now_ms = int(time.time() * 1000)
    for value in payloads(size, count, compressible=compressible):
        builder.append(None, value, [], now_ms)
    return bytes(builder.build()), count


def produce(
    bootstrap: str,
    topic: str,
    *,
    size: int,
    seconds: float,
    codec: str = "none",
    partitions: int = 1,
    batch_bytes: int = 16384,
    batches: int = 1,
    max_bytes: int = 1_500_000_000,
) -> dict[str, float]:
    """Send requests with a batch for each of `batches` partitions, in turn, for `seconds` or up to `max_bytes`."""
    batch, count = batch_of(size, batch_bytes, codec, codec != "none")
    groups = [range(first, first + batches) for first in range(0, partitions, batches)]
    requests = [produce_request(topic, [(index, batch) for index in group]) for group in groups]
    per_request = count * batches
    # Responses differ in their partition indexes, not in size.
    responses = ResponseCounter(topic, batches)
    send_until_accepted(bootstrap, requests, responses)
    cycle = Cycle(requests, 1)
    sent = done = 0
    with connect(bootstrap) as connection:
        begin = time.perf_counter()
        while True:
            more = time.perf_counter() - begin < seconds and sent * per_request * size < max_bytes
            while more and sent - done < IN_FLIGHT:
                for piece in cycle.take(1):
                    connection.sendall(piece)
                sent += 1
            if sent == done:
                break
            done += responses.add(receive(connection))
        elapsed = time.perf_counter() - begin
    records = done * per_request
    return {"records": records, "seconds": elapsed, "mb_per_s": records * size / elapsed / 1e6}


class RecordsReader:
    """A reader of Fetch v4 responses into one buffer, which returns the offset after the last whole batch."""

    def __init__(self, topic: str) -> None:
        self._buffer = bytearray(MAX_BYTES + (1 << 20))
        self._view = memoryview(self._buffer)
        self._records_at = 4 + 4 + 4 + 2 + len(topic.encode()) + 4

    def read(self, connection: socket.socket, sizes: deque[int]) -> int:
        """Read one response, append the size of each whole batch to `sizes`, and return the next offset (-1: none)."""
        size = 0
        while size < 4 or size < 4 + struct.unpack_from(">i", self._buffer)[0]:
            count = connection.recv_into(self._view[size:])
            if not count:
                raise ConnectionError("the server closed the connection")
            size += count
        position = 4 + self._records_at
        _index, error, _high_watermark, _stable, aborted = FETCH_LEAD.unpack_from(self._buffer, position)
        if error:
            raise RuntimeError(f"a fetch response has error {error}")
        position += FETCH_LEAD.size + 16 * max(aborted, 0)
        end = position + 4 + struct.unpack_from(">i", self._buffer, position)[0]
        return self._walk(position + 4, end, sizes)

    def _walk(self, position: int, end: int, sizes: deque[int]) -> int:
        following = -1
        while position + 61 <= end:
            base, length = struct.unpack_from(">qi", self._buffer, position)
            if position + 12 + length > end:
                break
            following = base + struct.unpack_from(">i", self._buffer, position + 23)[0] + 1
            sizes.append(length + 12)
            position += 12 + length
        return following


def consume(bootstrap: str, topic: str, *, records: int, seconds: float) -> dict[str, float]:
    """Fetch offsets 0 to `records` of partition 0 again and again for `seconds`, up to 4 MB per fetch."""
    reader = RecordsReader(topic)
    sizes: deque[int] = deque()
    offset = done = 0
    with connect(bootstrap) as connection:
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            connection.sendall(fetch_request(topic, offset, MAX_BYTES))
            following = reader.read(connection, sizes)
            if following < 0:
                raise RuntimeError(f"no records were received at offset {offset} of {records}")
            done += following - offset
            offset = following if following < records else 0
        elapsed = time.perf_counter() - begin
    return {"records": done, "seconds": elapsed, "mb_per_s": sum(sizes) / elapsed / 1e6}
