"""Small produce requests joined: the compiled functions do what their twins do, and leave everything else alone."""

from __future__ import annotations

import random
from array import array
from uuid import UUID

import pytest
from tests.cases import in_one_test
from tests.frames import framed

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.batch_header import HEADER_SIZE, BatchHeader, write_crc
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from barnabas.protocol.joint_produce import (
    FIRST_VERSION,
    KEY_FRONT,
    LAST_VERSION,
    MAX_JOINT_BATCH_BYTES,
    JoinedProduces,
    group_produces_py,
    join_produces_py,
    locate_batches_py,
    with_throttle_time,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.native import native
from barnabas.protocol.produce_entries import SINCE_TOPIC_IDS, CompactProduceResponse, write_generally
from barnabas.protocol.record_batch import RecordBatch, RecordBatchBuilder, iter_batches

compiled = pytest.mark.skipif(not hasattr(native, "join_accepted_produces"), reason="nothing is compiled here")
NOW_MS = 1_700_000_000_000
RULES = (NOW_MS - 1000, NOW_MS + 1000, False, False)
TOPIC_ID = UUID(int=7)
FUNCTIONS = [
    pytest.param((group_produces_py, join_produces_py, locate_batches_py), id="python"),
    pytest.param(
        native and (native.group_produce_requests, native.join_accepted_produces, native.locate_batches),
        id="compiled",
        marks=compiled,
    ),
]


def refuse(_: bytes) -> bool:
    """Accept no batch with a producer id."""
    return False


def accept(_: bytes) -> bool:
    """Accept every batch with a producer id."""
    return True


def batch(count: int = 1, *, timestamp: int = NOW_MS, size: int = 20, **fields: int) -> bytes:
    builder = RecordBatchBuilder(**fields)  # type: ignore[arg-type]
    for _ in range(count):
        assert builder.append(b"key", b"v" * size, (), timestamp)
    return bytes(builder.build())


def request(
    records: bytes,
    *,
    version: int = 9,
    topic: str = "t",
    index: int = 0,
    acks: int = 1,
    transactional_id: str | None = None,
    client_id: str | None = "client",
    correlation_id: int = 5,
) -> bytes:
    by_id = version >= SINCE_TOPIC_IDS
    data = TopicProduceData(
        name="" if by_id else topic,
        topic_id=TOPIC_ID if by_id else UUID(int=0),
        partition_data=[PartitionProduceData(index=index, records=records)],
    )
    message = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=[data])
    header = RequestHeader(ApiKey.PRODUCE, version, correlation_id, client_id)
    return framed(encode_request_header(header) + encode_request(message, version))


def key(version: int = 9, acks: int = 1, index: int = 0, topic: str = "t") -> bytes:
    named = TOPIC_ID.bytes if version >= SINCE_TOPIC_IDS else topic.encode()
    return KEY_FRONT.pack(version, acks, index, 30_000) + named


def laid_out(*parts: bytes) -> tuple[memoryview, list[tuple[int, int]]]:
    """The parts in one buffer with other bytes around them."""
    buffer, bounds = bytearray(b"??"), []
    for part in parts:
        bounds.append((len(buffer), len(buffer) + len(part)))
        buffer += part + b"?"
    return memoryview(buffer), bounds


@pytest.mark.parametrize("functions", FUNCTIONS)
@pytest.mark.parametrize("count", [2**32, 2**63, 2**64 - 1])
def test_a_count_of_more_than_32_bits_anywhere_is_not_joined(functions: tuple, count: int) -> None:
    """Nor calculated with: the sanitizers run this test."""
    group, _, _ = functions
    whole = request(batch())
    front = len(whole) - len(batch())
    varint = bytes(count >> shift & 0x7F | 0x80 for shift in range(0, 63, 7)) + bytes([count >> 63])
    for at in range(4, front):
        changed = whole[4:at] + varint + whole[at + 1 :]
        buffer, parts = laid_out(framed(changed))
        assert list(group(buffer, parts)) in ([], [key()]), "at most a client id or a tag that may be longer"


@pytest.mark.parametrize("functions", FUNCTIONS)
@in_one_test("version", range(FIRST_VERSION, LAST_VERSION + 1))
def test_batches_of_one_partition_are_joined_and_answered(functions: tuple, version: int) -> None:
    group, join, _ = functions
    first = request(batch(2), version=version, correlation_id=-1)
    second = request(batch(timestamp=NOW_MS + 9), version=version, correlation_id=2**31 - 1)
    third = request(batch(3, timestamp=NOW_MS - 9), version=version, client_id=None)
    buffer, parts = laid_out(first + second, third + third[:-1], request(batch(), version=version, index=4))
    before = bytes(buffer)
    assert group(buffer, parts) == {key(version): [0, 1], key(version, index=4): [2]}

    data, count, max_timestamp, ends, responses = join(
        buffer, parts[:2], key(version), (100, 6), (1000, 40, 9), RULES, refuse
    )
    assert bytes(buffer) == before, "the requests can be handled again"
    assert (count, max_timestamp) == (6, NOW_MS + 9)
    assert ends == [parts[0][1], parts[1][0] + len(third)]
    found = [each for each in iter_batches(memoryview(data)) if isinstance(each, RecordBatch)]
    assert [(each.base_offset, each.last_offset, each.header.partition_leader_epoch) for each in found] == [
        (100, 101, 6),
        (102, 102, 6),
        (103, 105, 6),
    ]
    answers = []
    for response in responses:
        while response:
            length = int.from_bytes(response[:4], "big")
            frame, response = response[4 : 4 + length], response[4 + length :]
            correlation_id, position = decode_response_header(ApiKey.PRODUCE, version, frame, 0, len(frame))
            decoded = decode_response(ApiKey.PRODUCE, version, frame, position, len(frame))
            (partition,) = decoded.responses[0].partition_responses
            assert (partition.error_code, partition.log_append_time_ms, decoded.throttle_time_ms) == (0, -1, 0)
            assert partition.log_start_offset == (40 if version >= 5 else -1)
            answers.append((correlation_id, partition.base_offset))
    assert answers == [(-1, 100), (2**31 - 1, 102), (5, 103)]


@pytest.mark.parametrize("functions", FUNCTIONS)
@in_one_test("version", range(FIRST_VERSION, LAST_VERSION + 1))
def test_responses_are_counted_and_get_a_throttle_time(functions: tuple, version: int) -> None:
    good, other = request(batch(), version=version), request(batch(), version=version, index=1)
    buffer, parts = laid_out(other, good * 3, good + other, good)
    joined = JoinedProduces(*functions[1](buffer, parts, key(version), (70, 6), (1000, 40, 9), RULES, refuse))
    assert joined.request_count == 5
    topic = TOPIC_ID.bytes if version >= SINCE_TOPIC_IDS else "t"
    throttled = CompactProduceResponse([(topic, 0)], [(74, 74, NOW_MS, -1, 40)])
    assert joined.responses[3] == write_generally(throttled, version, 5)
    throttled.throttle_time_ms = 2**31 - 1
    found = with_throttle_time(joined.responses[3], version, throttled.throttle_time_ms)
    assert found == write_generally(throttled, version, 5)
    none = JoinedProduces(*functions[1](buffer, parts[:1], key(version), (70, 6), (1000, 40, 9), RULES, refuse))
    assert none.request_count == 0


def other_requests() -> dict[str, bytes]:
    wrong_crc = bytearray(batch())
    wrong_crc[-1] ^= 1
    offset = bytearray(batch())
    offset[7] = 1
    server_time = bytearray(batch())
    server_time[22] |= 8
    write_crc(memoryview(server_time))
    return {
        "negative length": b"\xff\xff\xff\xff" + bytes(200),
        "longer than the part": b"\0\1\0\0" + request(batch())[4:],
        "another partition": request(batch(), index=1),
        "another topic": request(batch(), topic="tt"),
        "other acks": request(batch(), acks=0),
        "another version": request(batch(), version=8),
        "a transaction": request(batch(), transactional_id="x"),
        "a name that is not ASCII": request(batch(), topic="ü"),
        "no batch": request(b""),
        "half a batch": request(batch()[:-3]),
        "two batches": request(batch() + batch()),
        "a wrong CRC": request(bytes(wrong_crc)),
        "an offset": request(bytes(offset)),
        "a refused producer": request(batch(producer_id=4, producer_epoch=0, base_sequence=0)),
        "an invalid sequence": request(batch(producer_id=4, producer_epoch=0)),
        "a transactional batch": request(
            batch(producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True)
        ),
        "compression": request(batch(20, codec=2)),
        "LogAppendTime": request(bytes(server_time)),
        "a large batch": request(batch(size=2000)),
        "too old": request(batch(timestamp=NOW_MS - 5000)),
        "too new": request(batch(timestamp=NOW_MS + 5000)),
    }


@pytest.mark.parametrize("functions", FUNCTIONS)
@in_one_test("name", other_requests())
def test_any_other_request_ends_its_part(functions: tuple, name: str) -> None:
    _, join, _ = functions
    good, other = request(batch()), other_requests()[name]
    buffer, parts = laid_out(other + good, good + other + good, good)
    data, count, _, ends, responses = join(buffer, parts, key(), (0, 0), (1000, 0, 9), RULES, refuse)
    assert ends == [parts[0][0], parts[1][0] + len(good), parts[2][1]]
    assert (count, len(list(iter_batches(memoryview(data))))) == (2, 2)
    assert [bool(response) for response in responses] == [False, True, True]


@pytest.mark.parametrize("functions", FUNCTIONS)
@pytest.mark.parametrize("name", ["compression", "a transaction", "a transactional batch", "no batch", "too large"])
def test_requests_that_cannot_be_joined_are_in_no_group(functions: tuple, name: str) -> None:
    other = {**other_requests(), "too large": request(batch(size=MAX_JOINT_BATCH_BYTES))}[name]
    buffer, parts = laid_out(other, request(batch()), other)
    assert functions[0](buffer, parts) == {key(): [1]}


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_a_batch_with_a_producer_id_is_accepted_in_the_order_of_offsets(functions: tuple) -> None:
    headers: list[BatchHeader] = []

    def accept_other_than_three(front: bytes) -> bool:
        assert len(front) == HEADER_SIZE
        headers.append(BatchHeader.read(front))
        return headers[-1].producer_id != 3

    def produced(producer_id: int, sequence: int = 0) -> bytes:
        return request(batch(2, producer_id=producer_id, producer_epoch=1, base_sequence=sequence))

    wrong = bytearray(batch(producer_id=8, producer_epoch=0, base_sequence=0))
    wrong[-1] ^= 1
    buffer, parts = laid_out(
        produced(1) + request(batch()) + produced(1, 2),
        produced(2) + produced(3) + produced(2, 2),
        request(bytes(wrong)) + produced(8),
        produced(4, 2**31 - 1),
    )
    data, count, _, ends, responses = functions[1](
        buffer, parts, key(), (10, 7), (1000, 0, 9), RULES, accept_other_than_three
    )
    found = [(each.producer_id, each.base_sequence, each.base_offset, each.partition_leader_epoch) for each in headers]
    assert found == [(1, 0, 10, 7), (1, 2, 13, 7), (2, 0, 15, 7), (3, 0, 17, 7), (4, 2**31 - 1, 17, 7)]
    assert (count, ends) == (9, [parts[0][1], parts[1][0] + len(produced(2)), parts[2][0], parts[3][1]])
    assert [each.base_offset for each in iter_batches(memoryview(data))] == [10, 12, 13, 15, 17]
    assert [len(response) // len(responses[3]) for response in responses] == [3, 1, 0, 1]


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_an_error_of_accept_is_raised(functions: tuple) -> None:
    def fail(_: bytes) -> bool:
        parts.clear()
        raise LookupError("no producer")

    producer = request(batch(producer_id=1, producer_epoch=1, base_sequence=0))
    buffer, parts = laid_out(request(batch()), producer, producer)
    with pytest.raises(LookupError, match="no producer"):
        functions[1](buffer, parts, key(), (0, 0), (1000, 0, 9), RULES, fail)


@compiled
def test_the_list_of_parts_may_change_while_requests_are_joined() -> None:
    assert native is not None
    producer = request(batch(producer_id=1, producer_epoch=1, base_sequence=0))
    buffer, parts = laid_out(producer, request(batch()))
    bounds = parts[:]

    def add_parts(_: bytes) -> bool:
        parts.extend([bounds[1]] * 100)
        return True

    joined = native.join_accepted_produces(buffer, parts, key(), (0, 0), (1000, 0, 9), RULES, add_parts)
    assert (joined[1], joined[3]) == (2, [end for _, end in bounds])


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_keys_are_required_where_the_rules_say_so(functions: tuple) -> None:
    builder = RecordBatchBuilder()
    assert builder.append(None, b"value", (), NOW_MS)
    buffer, parts = laid_out(request(bytes(builder.build())), request(batch()))
    for needs_keys, count in ((False, 2), (True, 1)):
        assert (
            functions[1](buffer, parts, key(), (0, 0), (1000, 0, 9), (*RULES[:2], needs_keys, False), refuse)[1]
            == count
        )


@compiled
@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_damaged_requests_are_joined_by_both_or_by_none(version: int) -> None:
    assert native is not None
    rng = random.Random(version)
    good = request(batch(), version=version)
    for _ in range(2000):
        damaged = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 5])):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
        buffer, parts = laid_out(bytes(damaged) + good, good)
        arguments = buffer, parts, key(version), (5, 1), (1000, 0, 9), RULES, accept
        joined = native.join_accepted_produces(*arguments)
        twin = join_produces_py(*arguments)
        if joined != twin:
            # Tagged fields and bytes after the request: the general decoder reads them, the compiled one leaves them.
            assert joined[3][0] == parts[0][0]
        groups = group_produces_py(buffer, parts)
        assert all(
            set(numbers) <= set(groups[name]) for name, numbers in native.group_produce_requests(buffer, parts).items()
        )


@compiled
def test_wrong_arguments_are_refused() -> None:
    assert native is not None
    buffer, parts = laid_out(request(batch()))
    for wrong in ([(0, len(buffer) + 1)], [(-1, 5)], [(5, 4)], [5], [(0, 1, 2)], [("a", "b")]):
        with pytest.raises(ValueError, match="part"):
            native.group_produce_requests(buffer, wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="part"):
            native.join_accepted_produces(buffer, wrong, key(), (0, 0), (1000, 0, 9), RULES, refuse)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="key"):
        native.join_accepted_produces(buffer, parts, b"short", (0, 0), (1000, 0, 9), RULES, refuse)
    with pytest.raises(TypeError):
        native.group_produce_requests(buffer, tuple(parts))  # type: ignore[arg-type]


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_batches_are_located(functions: tuple) -> None:
    buffer, parts = laid_out(request(batch(3)) + request(batch()) + request(batch(2)))
    data = functions[1](buffer, parts, key(), (50, 0), (1000, 0, 9), RULES, refuse)[0]
    sizes = [each.size for each in iter_batches(memoryview(data))]
    offsets, positions = functions[2](memoryview(data), 1000)
    assert array("q", offsets).tolist() == [50, 53, 54]
    assert array("q", positions).tolist() == [1000, 1000 + sizes[0], 1000 + sizes[0] + sizes[1]]
    assert functions[2](memoryview(data)[:-1], 0)[0] == offsets[:16], "only whole batches"
    assert functions[2](memoryview(b""), 5) == (b"", b"")
