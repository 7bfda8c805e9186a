"""How a topic's first batches are stored: clients fall back to no compression without a word."""

import socket
import struct

from barnabas.protocol.compression import Compression
from barnabas.protocol.record_batch import iter_batches


def stored_codecs(bootstrap: str, topic: str) -> set[str]:
    """Names of the codecs of the batches at the start of partition 0, by a plain Fetch v4."""
    host, port = bootstrap.split(":")
    name = topic.encode()
    body = struct.pack(">hhih", 1, 4, 1, -1) + struct.pack(">iiiibi", -1, 1000, 1, 1 << 20, 0, 1)
    body += struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = connection.makefile("rb")
        frame = answer.read(struct.unpack(">i", answer.read(4))[0])
    # correlation id, throttle time, one topic with its name, one partition: index, error, high watermark, stable offset
    position = 4 + 4 + 4 + 2 + len(name) + 4 + 4
    error = struct.unpack_from(">h", frame, position)[0]
    assert error == 0, f"fetch error {error}"
    position += 2 + 8 + 8
    aborted = struct.unpack_from(">i", frame, position)[0]
    position += 4 + 16 * max(aborted, 0)
    size = struct.unpack_from(">i", frame, position)[0]
    records = bytearray(frame[position + 4 : position + 4 + size])
    return {Compression(batch.codec).name.lower() for batch in iter_batches(memoryview(records))}
