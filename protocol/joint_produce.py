"""Small produce requests to one partition, joined: one append and one write for the batches of many requests.

Each request is for one partition and has no transactional id, and its batch can be appended unchanged except for its
base offset and leader epoch (`validate_and_stamp`). Requests with the same key differ only in their correlation ids,
client ids and batches, so that their responses are known as soon as the batches are valid. All other requests take the
general path, one after another.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, TypeAlias

from .apis import ApiKey
from .batch_header import BATCH_HEADER, CONTROL_MASK, HEADER_SIZE, TRANSACTIONAL_MASK, BatchHeader
from .errors import ProtocolError
from .frames import LENGTH_SIZE
from .headers import RequestHeader, key_at
from .native import native
from .produce_entries import SINCE_TOPIC_IDS, CompactProduceResponse, ProduceEntries, read_generally, write_generally
from .record import CODEC_MASK, LOG_OVERHEAD, MAGIC_POSITION, NO_TIMESTAMP
from .record_scan import RecordRules
from .usual_batch import validate_and_stamp_py

KEY_FRONT = Struct(">hhii")
"""Version, acks, partition index and timeout in ms: the beginning of the key of a group. The topic follows it, by name
or, since version 13, by id."""
MAX_JOINT_BATCH_BYTES = 1 << 14
"""The size of the largest batch that is joined with others. Larger batches are not copied before the write."""
FIRST_VERSION, LAST_VERSION, FIRST_FLEXIBLE_VERSION = 3, 13, 9
_LEFT_OUT = CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
_THROTTLE_TIME = Struct(">i")
_length_at = Struct(">i").unpack_from
_version_at = Struct(">h").unpack_from


Accept: TypeAlias = Callable[[bytes], bool]
"""Called with the header of a batch with a producer id, which has its base offset and leader epoch. Returns whether the
batch is appended."""


class JoinedProduces(NamedTuple):
    """The valid batches at the beginning of some parts of a buffer."""

    data: bytes
    """The batches, with their offsets and leader epochs."""
    record_count: int
    max_timestamp: int
    """The largest timestamp of all records, -1 if there is none."""
    ends: list[int]
    """The position after the last request whose batch is in `data`, by part."""
    responses: list[bytes]
    """The response frames to these requests, by part; empty for a part without such a request."""

    @property
    def request_count(self) -> int:
        """Return the number of requests whose batches are in `data`: their responses have one size."""
        frame = next(filter(None, self.responses), b"")
        return sum(map(len, self.responses)) // (LENGTH_SIZE + _length_at(frame)[0]) if frame else 0


def with_throttle_time(response: bytes, version: int, throttle_time_ms: int) -> bytes:
    """Return a response of `JoinedProduces` with this throttle time, which is its last field."""
    end = len(response) - (version >= FIRST_FLEXIBLE_VERSION)
    return response[: end - _THROTTLE_TIME.size] + _THROTTLE_TIME.pack(throttle_time_ms) + response[end:]


def group_produces_py(buffer: memoryview, parts: list[tuple[int, int]]) -> dict[bytes, list[int]]:
    """Return the parts `[start, end)` of `buffer` that begin with a small produce request, by the key of the request.

    A part consists of request frames with their lengths, the last one possibly incomplete.
    """
    groups: dict[bytes, list[int]] = {}
    for number, (start, end) in enumerate(parts):
        found = _read(buffer, start, end)
        if found is not None:
            groups.setdefault(found[0], []).append(number)
    return groups


def join_produces_py(
    buffer: memoryview,
    parts: list[tuple[int, int]],
    key: bytes,
    place: tuple[int, int],
    limits: tuple[int, int, int],
    rules: RecordRules,
    accept: Accept,
) -> tuple[bytes, int, int, list[int], list[bytes]]:
    """Return the fields of `JoinedProduces` for the requests with this key at the beginning of each part.

    `place` is the base offset and the leader epoch. `limits` is the maximum size of a batch in bytes, the log start
    offset for the responses, and the maximum number of requests to join from one part. `accept` decides on valid
    batches with a producer id, in the order of their offsets. The buffer is not changed.
    """
    max_size, log_start_offset, most = limits
    first_offset, leader_epoch = place
    next_offset, max_timestamp = first_offset, NO_TIMESTAMP
    batches: list[bytearray] = []
    ends: list[int] = []
    responses: list[bytes] = []
    for start, end in parts:
        response = b""
        taken_requests = 0
        while taken_requests < most and (found := _read(buffer, start, end)) is not None and found[0] == key:
            _, header, request, frame_end = found
            batch = bytearray(request.entries[0][2])
            taken = validate_and_stamp_py(memoryview(batch), None, (next_offset, leader_epoch), max_size, rules)
            if taken is None or (taken[2] >= 0 and not accept(bytes(batch[:HEADER_SIZE]))):
                break
            result = next_offset, next_offset + taken[0] - 1, taken[1], NO_TIMESTAMP, log_start_offset
            answer = CompactProduceResponse(request.keys, [result])
            response += write_generally(answer, header.api_version, header.correlation_id)
            batches.append(batch)
            next_offset += taken[0]
            max_timestamp = max(max_timestamp, taken[1])
            start = frame_end
            taken_requests += 1
        ends.append(start)
        responses.append(response)
    return b"".join(batches), next_offset - first_offset, max_timestamp, ends, responses


def _read(buffer: memoryview, start: int, end: int) -> tuple[bytes, RequestHeader, ProduceEntries, int] | None:
    """Return key, header, body and end of the small produce request at `start`; None for other bytes."""
    if end - start < LENGTH_SIZE:
        return None
    length: int = _length_at(buffer, start)[0]
    start += LENGTH_SIZE
    if not 4 <= length <= end - start or key_at(buffer, start)[0] != ApiKey.PRODUCE:
        return None
    version: int = _version_at(buffer, start + 2)[0]
    if not FIRST_VERSION <= version <= LAST_VERSION:
        return None
    try:
        header, request = read_generally(version, buffer, start, start + length)
    except ProtocolError:
        return None
    if request.transactional_id is not None or len(request.entries) != 1 or not (header.client_id or "").isascii():
        return None
    topic, index, records = request.entries[0]
    if not HEADER_SIZE < len(records) <= MAX_JOINT_BATCH_BYTES:
        return None
    batch = BatchHeader.read(records)
    if batch.magic != 2 or batch.attributes & _LEFT_OUT:
        return None
    if version < SINCE_TOPIC_IDS:
        if not topic.isascii():
            return None
        topic = topic.encode()
    return KEY_FRONT.pack(version, request.acks, index, request.timeout_ms) + topic, header, request, start + length


def locate_batches_py(data: memoryview, position: int) -> tuple[bytes, bytes]:
    """Return the first offsets and the positions of the v2 batches at the beginning of `data`, as numbers of 64 bits.

    `position` is the position of the first batch in its segment, in bytes.
    """
    offsets, positions = array("q"), array("q")
    at = 0
    while len(data) - at >= HEADER_SIZE:
        (offset,) = _offset_at(data, at)
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + LOG_OVERHEAD
        if data[at + MAGIC_POSITION] != 2 or not HEADER_SIZE <= size <= len(data) - at:
            break
        offsets.append(offset)
        positions.append(position + at)
        at += size
    return offsets.tobytes(), positions.tobytes()


_offset_at = BATCH_HEADER.reader("base_offset")

# Looked up by name, because an extension that was compiled from older sources does not have these functions.
group_produces: Callable[[memoryview, list[tuple[int, int]]], dict[bytes, list[int]]] = getattr(
    native, "group_produce_requests", group_produces_py
)
join_produces: Callable[
    [memoryview, list[tuple[int, int]], bytes, tuple[int, int], tuple[int, int, int], RecordRules, Accept],
    tuple[bytes, int, int, list[int], list[bytes]],
] = getattr(native, "join_accepted_produces", join_produces_py)
locate_batches: Callable[[memoryview, int], tuple[bytes, bytes]] = getattr(native, "locate_batches", locate_batches_py)
