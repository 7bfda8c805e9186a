"""The ceiling: a server with the minimum of work that produce requests and fetches require in Python.

    python -m bench.ceiling PORT FOLDER [PARTITIONS]
    python -m bench.ceiling PORT FOLDER PARTITIONS sink

It has a socket, a receive buffer, one CRC-32C and one `write` per batch, and one `pread` per fetched partition. Every
topic exists. With acks -1, responses wait for one `fdatasync` of all files that were written during the previous
`fdatasync`. A compressed batch is decompressed, as a broker must do to check its records, but the records are not
checked. The other features of a broker (validation, indexes, recovery, purgatories, limits) are missing on purpose: the
distance between a broker and this server is the cost of these features. It supports Produce 3-7, Fetch 4,
ListOffsets 1, Metadata 1 and ApiVersions 0, so clients treat it as an old broker.

The sink does less: it acknowledges batches and drops them unread. If the client limits the rate, no broker can be
faster than the sink.
"""

import asyncio
import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from struct import Struct

import crc32c
import uvloop

from barnabas.protocol.batch_header import ATTRIBUTES_POSITION, HEADER_SIZE
from barnabas.protocol.compression import look_into, take_room
from barnabas.protocol.record import CODEC_MASK

REQUEST = Struct(">hhih")
PRODUCE_LEAD = Struct(">hi")
FETCH_LEAD = Struct(">iiiib")
FETCH_PARTITION = Struct(">iqi")
FETCHED = Struct(">ihqqii")
PRODUCED = Struct(">ihqqq")
LIST_PARTITION = Struct(">iq")
LISTED = Struct(">ihqq")
BATCH_LENGTH = Struct(">i")
BATCH_CRC = Struct(">I")
BATCH_COUNT = Struct(">i")
BATCH_PLACE = Struct(">q")
BATCH_EPOCH = Struct(">i")
BATCH_OFFSETS = Struct(">qi11xi")
INT16, INT32 = Struct(">h"), Struct(">i")

API_RANGES = ((0, 3, 7), (1, 4, 4), (2, 1, 1), (3, 1, 1), (18, 0, 0))
CODEC_POSITION, RECORDS_POSITION = ATTRIBUTES_POSITION + 1, HEADER_SIZE
INDEX_INTERVAL = 4096
MAX_OPENED = 1 << 24
BUFFER_SIZE = 1 << 20


class PartitionFile:
    """A file of consecutive batches, with a sparse list of (offset, position) to find them."""

    room = take_room()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.size = 0
        self.next_offset = 0
        self.index = [(0, 0)]
        self.unindexed = 0
        self.waiting: list[Callable[[], None]] = []

    def append(self, batches: memoryview) -> int:
        """Check the CRC of each batch, assign its offset in place, write all batches, and return the first offset."""
        first = self.next_offset
        position, end = 0, len(batches)
        while position < end:
            stop = position + 12 + BATCH_LENGTH.unpack_from(batches, position + 8)[0]
            if crc32c.crc32c(batches[position + 21 : stop]) != BATCH_CRC.unpack_from(batches, position + 17)[0]:
                raise ValueError("a batch has a wrong checksum")
            if codec := batches[position + CODEC_POSITION] & CODEC_MASK:
                look_into(codec, batches[position + RECORDS_POSITION : stop], self.room, max_size=MAX_OPENED)
            BATCH_PLACE.pack_into(batches, position, self.next_offset)
            BATCH_EPOCH.pack_into(batches, position + 12, 0)
            self.next_offset += BATCH_COUNT.unpack_from(batches, position + 57)[0]
            position = stop
        if self.unindexed > INDEX_INTERVAL:
            self.index.append((first, self.size))
            self.unindexed = 0
        os.write(self.descriptor, batches)
        self.size += end
        self.unindexed += end
        if self.waiting:
            callbacks, self.waiting = self.waiting, []
            for callback in callbacks:
                callback()
        return first

    def read(self, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes from the batch that holds `offset`, or none at the end of the log."""
        if offset >= self.next_offset:
            return b""
        position = self.index[bisect_right(self.index, (offset, 1 << 62)) - 1][1]
        while True:
            base, length, last_delta = BATCH_OFFSETS.unpack_from(os.pread(self.descriptor, 27, position))
            if base + last_delta >= offset:
                return os.pread(self.descriptor, min(limit, self.size - position), position)
            position += length + 12


class Sink(PartitionFile):
    """A partition that counts the records of the single batch in a request, and does not store them."""

    def append(self, batches: memoryview) -> int:
        first = self.next_offset
        self.next_offset += BATCH_COUNT.unpack_from(batches, 57)[0]
        return first


class Commits:
    """Responses that wait for the disk: one `fdatasync` of each file at a time, on a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = ThreadPoolExecutor(1)
        self.files: set[int] = set()
        self.answers: list[Callable[[], None]] = []
        self.is_busy = False

    def wait(self, files: list[PartitionFile], answer: Callable[[], None]) -> None:
        """Call `answer` once the bytes that have been written to these files are on the disk."""
        self.files.update(file.descriptor for file in files)
        self.answers.append(answer)
        if not self.is_busy:
            self.is_busy = True
            self.loop.call_soon(self.begin)

    def begin(self) -> None:
        files, answers = self.files, self.answers
        self.files, self.answers = set(), []

        def sync() -> None:
            for descriptor in files:
                os.fdatasync(descriptor)
            self.loop.call_soon_threadsafe(self.end, answers)

        self.thread.submit(sync)

    def end(self, answers: list[Callable[[], None]]) -> None:
        for answer in answers:
            answer()
        self.is_busy = bool(self.answers)
        if self.is_busy:
            self.loop.call_soon(self.begin)


class Store:
    """The partitions, which are created when a request first names them."""

    def __init__(self, folder: Path, port: int, partition_count: int, kind: type[PartitionFile]) -> None:
        self.commits = Commits()
        self.kind = kind
        self.folder = folder
        self.port = port
        self.partition_count = partition_count
        self.files: dict[tuple[bytes, int], PartitionFile] = {}

    def partition(self, topic: bytes, index: int) -> PartitionFile:
        found = self.files.get((topic, index))
        if found is None:
            found = self.files[topic, index] = self.kind(self.folder / f"{topic.decode()}-{index}.log")
        return found


class Connection(asyncio.BufferedProtocol):
    """One client connection: requests are parsed in the receive buffer and answered immediately."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.buffer = bytearray(BUFFER_SIZE)
        self.view = memoryview(self.buffer)
        self.start = self.stop = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.stop == len(self.buffer):
            self.make_room(len(self.buffer) if self.start else 2 * len(self.buffer))
        return self.view[self.stop :]

    def make_room(self, size: int) -> None:
        """Move the unread bytes to the front of a new buffer. Views of the old buffer remain valid."""
        unread = self.stop - self.start
        fresh = bytearray(size)
        fresh[:unread] = self.view[self.start : self.stop]
        self.buffer, self.view = fresh, memoryview(fresh)
        self.start, self.stop = 0, unread

    def buffer_updated(self, nbytes: int) -> None:
        self.stop += nbytes
        while self.stop - self.start >= 4:
            length = INT32.unpack_from(self.buffer, self.start)[0]
            if self.stop - self.start < 4 + length:
                if 4 + length > len(self.buffer):
                    self.make_room(4 + length + 65536)
                return
            self.handle(self.start + 4)
            self.start += 4 + length
        if self.start == self.stop:
            self.start = self.stop = 0

    def handle(self, position: int) -> None:
        key, version, correlation, client_length = REQUEST.unpack_from(self.buffer, position)
        position += 10 + max(client_length, 0)
        if key == 0:
            self.produce(position, version, correlation)
        elif key == 1:
            self.fetch(self.buffer, position, correlation, may_wait=True)
        elif key == 2:
            self.list_offsets(position, correlation)
        elif key == 3:
            self.metadata(position, correlation)
        elif key == 18:
            ranges = b"".join(Struct(">hhh").pack(*entry) for entry in API_RANGES)
            self.send(correlation, [INT16.pack(35 if version else 0) + INT32.pack(len(API_RANGES)) + ranges])
        else:
            self.transport.close()

    def send(self, correlation: int, parts: list[bytes]) -> None:
        if self.transport.is_closing():
            return
        length = 4 + sum(map(len, parts))
        self.transport.writelines([INT32.pack(length) + INT32.pack(correlation), *parts])

    def text(self, position: int) -> tuple[bytes, int]:
        length = INT16.unpack_from(self.buffer, position)[0]
        position += 2
        return bytes(self.view[position : position + length]), position + length

    def count(self, position: int) -> int:
        number: int = INT32.unpack_from(self.buffer, position)[0]
        return number

    def produce(self, position: int, version: int, correlation: int) -> None:
        position += 2 + max(INT16.unpack_from(self.buffer, position)[0], 0)
        acks, _timeout = PRODUCE_LEAD.unpack_from(self.buffer, position)
        topics = self.count(position + 6)
        position += 10
        parts = [INT32.pack(topics)]
        files: list[PartitionFile] = []
        answer_size = PRODUCED.size if version >= 5 else PRODUCED.size - 8
        for _ in range(topics):
            topic, position = self.text(position)
            partitions = self.count(position)
            position += 4
            parts.append(INT16.pack(len(topic)) + topic + INT32.pack(partitions))
            for _ in range(partitions):
                index, size = self.count(position), self.count(position + 4)
                position += 8
                file = self.store.partition(topic, index)
                first = file.append(self.view[position : position + size])
                files.append(file)
                position += size
                parts.append(PRODUCED.pack(index, 0, first, -1, 0)[:answer_size])
        parts.append(INT32.pack(0))
        if acks == -1:
            self.store.commits.wait(files, partial(self.send, correlation, parts))
        elif acks:
            self.send(correlation, parts)

    def fetch(self, buffer: bytearray | bytes, position: int, correlation: int, *, may_wait: bool) -> None:
        begin = position
        _replica, wait_ms, min_bytes, _max_bytes, _isolation = FETCH_LEAD.unpack_from(buffer, position)
        topics = INT32.unpack_from(buffer, position + 17)[0]
        position += 21
        parts = [INT32.pack(0) + INT32.pack(topics)]
        total, files = 0, []
        for _ in range(topics):
            length = INT16.unpack_from(buffer, position)[0]
            topic = bytes(buffer[position + 2 : position + 2 + length])
            position += 2 + length
            partitions = INT32.unpack_from(buffer, position)[0]
            position += 4
            parts.append(INT16.pack(length) + topic + INT32.pack(partitions))
            for _ in range(partitions):
                index, offset, limit = FETCH_PARTITION.unpack_from(buffer, position)
                position += FETCH_PARTITION.size
                file = self.store.partition(topic, index)
                data = file.read(offset, limit)
                files.append(file)
                total += len(data)
                parts.append(FETCHED.pack(index, 0, file.next_offset, file.next_offset, -1, len(data)))
                parts.append(data)
        if may_wait and total < min_bytes:
            self.park(bytes(buffer[begin:position]), correlation, wait_ms, files)
        else:
            self.send(correlation, parts)

    def park(self, request: bytes, correlation: int, wait_ms: int, files: list[PartitionFile]) -> None:
        """Repeat and answer a fetch that found too few bytes, after the next append or after its maximum wait."""
        done = False

        def answer() -> None:
            nonlocal done
            if not done:
                done = True
                timer.cancel()
                self.fetch(request, 0, correlation, may_wait=False)

        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, answer)
        for file in files:
            file.waiting.append(answer)

    def list_offsets(self, position: int, correlation: int) -> None:
        topics = self.count(position + 4)
        position += 8
        parts = [INT32.pack(topics)]
        for _ in range(topics):
            topic, position = self.text(position)
            partitions = self.count(position)
            position += 4
            parts.append(INT16.pack(len(topic)) + topic + INT32.pack(partitions))
            for _ in range(partitions):
                index, timestamp = LIST_PARTITION.unpack_from(self.buffer, position)
                position += LIST_PARTITION.size
                offset = self.store.partition(topic, index).next_offset if timestamp == -1 else 0
                parts.append(LISTED.pack(index, 0, -1, offset))
        self.send(correlation, parts)

    def metadata(self, position: int, correlation: int) -> None:
        topics = max(self.count(position), 0)
        position += 4
        host = b"127.0.0.1"
        broker = INT32.pack(0) + INT16.pack(len(host)) + host + INT32.pack(self.store.port) + INT16.pack(-1)
        parts = [INT32.pack(1) + broker + INT32.pack(0) + INT32.pack(topics)]
        count = self.store.partition_count
        leader_zero = [Struct(">hiiiiii").pack(0, index, 0, 1, 0, 1, 0) for index in range(count)]
        for _ in range(topics):
            topic, position = self.text(position)
            parts.append(INT16.pack(0) + INT16.pack(len(topic)) + topic + b"\0" + INT32.pack(count))
            parts.extend(leader_zero)
        self.send(correlation, parts)


async def serve(port: int, folder: Path, partition_count: int, kind: type[PartitionFile]) -> None:
    """Listen until the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder, port, partition_count, kind)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(store), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2]), count, Sink if sys.argv[4:] == ["sink"] else PartitionFile))
