"""Record batches of format v2: golden bytes, the builder, reading, scanning, and construct as a second opinion."""

import random
from functools import partial
from struct import pack_into
from typing import Any

import construct
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol import record_constructs
from barnabas.protocol.batch_header import HEADER, HEADER_SIZE, BatchHeader
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.compression import Compression, decompress
from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.record import Record, TimestampType
from barnabas.protocol.record_batch import (
    ControlType,
    RecordBatch,
    RecordBatchBuilder,
    control_batch,
    iter_batches,
    parse_control_key,
    parse_end_marker,
    stamp_producer,
    write_crc,
)
from barnabas.protocol.record_codec import decode_records, encode_record
from barnabas.protocol.record_scan import HIGHEST, LOWEST, scan_records
from barnabas.protocol.varint import decode_varint, decode_varlong, encode_varint

NOW = 1_700_000_000_000
KEYED = (LOWEST, HIGHEST, True, False)
some_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=10), some_bytes), max_size=3)
record_lists = st.lists(
    st.tuples(some_bytes, some_bytes, headers, st.integers(-1, 2**62)),
    min_size=1,
    max_size=30,
)


def only(data: bytes | bytearray | memoryview) -> RecordBatch:
    (batch,) = iter_batches(data)
    assert isinstance(batch, RecordBatch)
    return batch


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_agree_with_construct(value: int) -> None:
    data = encode_varint(value)
    assert data == construct.ZigZag.build(value)
    assert decode_varlong(data + b"\xff", 0) == (value, len(data))
    if -(2**31) <= value < 2**31:
        assert decode_varint(b"." + data, 1) == (value, len(data) + 1)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10, b"\xff\xff\xff\xff\xff\x01"])
def test_broken_varints(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_varint(data, 0)
    if data != b"\xff\xff\xff\xff\xff\x01":
        with pytest.raises(ProtocolError):
            decode_varlong(data, 0)


def test_an_endless_varint_is_refused_by_its_first_bytes() -> None:
    class Counting(bytes):
        looked_at = 0

        def __getitem__(self, index: Any) -> Any:
            self.looked_at += 1
            return bytes.__getitem__(self, index)

    data = Counting(b"\xff" * 1_000_000)
    for decode in (decode_varint, decode_varlong):
        with pytest.raises(ProtocolError, match="of more than"):
            decode(data, 0)
    assert data.looked_at <= 20


@settings(deadline=None)
@given(record_lists, st.sampled_from(list(Compression)), st.integers(0, 2**40))
def test_builder_reader_and_construct_agree(
    items: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]], codec: int, base_offset: int
) -> None:
    builder = RecordBatchBuilder(codec=codec, base_offset=base_offset, producer_id=5, producer_epoch=6, base_sequence=7)
    for key, value, record_headers, timestamp in items:
        assert builder.append(key, value, record_headers, timestamp)
    data = builder.build()
    batch = only(data)
    expected = [
        Record(base_offset + i, timestamp, key, value, tuple(record_headers))
        for i, (key, value, record_headers, timestamp) in enumerate(items)
    ]
    found = [record._replace(headers=tuple(record.headers)) for record in batch.records()]
    assert found == expected
    assert batch.is_valid and batch.size == len(data)
    assert batch.last_offset == base_offset + len(items) - 1
    assert batch.max_timestamp == max(item[3] for item in items)

    described = record_constructs.RECORD_BATCH.parse(data)
    assert record_constructs.RECORD_BATCH.build(described) == data
    assert {name: described[name] for name in BatchHeader._fields if name not in ("attributes", "magic")} == {
        name: value for name, value in batch.header._asdict().items() if name not in ("attributes", "magic")
    }
    assert described.attributes.codec == batch.codec == codec
    plain = decompress(codec, described.records, max_size=1 << 24)
    records = list(record_constructs.parse_records(plain, len(items)))
    assert b"".join(map(record_constructs.RECORD.build, records)) == plain
    for record, seen in zip(expected, records, strict=True):
        assert (record.key, record.value) == (seen.key.data, seen.value.data)
        assert record.timestamp == described.base_timestamp + seen.timestamp_delta
        assert [(name.encode(), value) for name, value in record.headers] == [
            (header.key.data, header.value.data) for header in seen.headers
        ]
    keyless = [(i, None) for i, item in enumerate(items) if item[0] is None]
    assert scan_records(plain, len(items), items[0][3], KEYED, 100) == (batch.max_timestamp, keyless)


def test_many_records_with_offsets_and_lengths_of_every_varint_size() -> None:
    builder = RecordBatchBuilder()
    for i in range(20_000):
        builder.append(None if i % 5 else b"key", bytes(i % 200 if i % 1000 else 40_000), (), NOW + i * 37)
    batch = only(builder.build())
    records = list(batch.records())
    assert [record.offset for record in records] == list(range(20_000))
    scan = scan_records(batch.plain_records(), 20_000, NOW, KEYED, 20_000)
    assert scan == (NOW + 19_999 * 37, [(i, None) for i in range(20_000) if i % 5])


def test_the_bytes_of_one_batch() -> None:
    builder = RecordBatchBuilder(
        base_offset=1, partition_leader_epoch=2, producer_id=3, producer_epoch=4, base_sequence=5
    )
    builder.append(b"k", b"hello", [("h", None)], 1000)
    covered = bytes.fromhex(
        # attributes, last offset delta, base and max timestamp, producer id, epoch, sequence, count, then the record
        "0000 00000000 00000000000003e8 00000000000003e8 0000000000000003 0004 00000005 00000001"
        "1e 00 00 00 02 6b 0a 68656c6c6f 02 02 68 01"
    )
    front = bytes.fromhex("0000000000000001 00000041 00000002 02")
    assert builder.build() == front + crc32c(covered).to_bytes(4, "big") + covered
    assert crc32c(b"123456789") == 0xE3069283


def test_max_size_refuses_all_but_the_first_record() -> None:
    builder = RecordBatchBuilder(max_size=100)
    assert builder.append(None, bytes(500))
    assert not builder.append(None, b"x")
    assert len(builder) == 1 and builder.size == len(builder.build())
    small = RecordBatchBuilder(max_size=100)
    count = 0
    while small.append(None, b"x"):
        count += 1
    assert count > 3 and len(small.build()) <= 100 and len(list(only(small.build()).records())) == count


def test_log_append_time_overrides_the_records_own() -> None:
    builder = RecordBatchBuilder(log_append_time=NOW)
    builder.append(b"k", b"v", (), 5)
    batch = only(builder.build())
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.records()] == [NOW]


def test_offsets_may_leave_gaps() -> None:
    builder = RecordBatchBuilder(base_offset=10)
    builder.append(b"a", None, (), 1)
    builder.append(b"b", None, (), 2, offset=17)
    batch = only(builder.build())
    assert [record.offset for record in batch.records()] == [10, 17]
    assert batch.last_offset == 17 and batch.header.record_count == 2


def test_header_properties() -> None:
    header = BatchHeader(100, 49, 3, 2, 0, 0x7A, 9, 555, 666, 77, 1, 2**31 - 5, 10)
    assert (header.codec, header.timestamp_type) == (2, TimestampType.LOG_APPEND_TIME)
    assert header.is_transactional and header.is_control and header.delete_horizon_ms == 555
    assert header.last_sequence == 4 and header.last_offset == 109 and header.size_in_bytes == 61
    assert header._replace(base_sequence=-1).last_sequence == -1
    assert BatchHeader.read(HEADER.pack(*header)) == header


def test_control_batch() -> None:
    data = control_batch(
        ControlType.COMMIT, producer_id=9, producer_epoch=2, coordinator_epoch=13, timestamp=NOW, base_offset=5
    )
    batch = only(data)
    assert batch.is_control and batch.is_transactional and batch.base_sequence == -1
    (record,) = batch.records()
    assert parse_control_key(record.key) == ControlType.COMMIT
    assert parse_end_marker(record.key, record.value) == batch.end_marker == (False, 13)
    assert record_constructs.CONTROL_RECORD_KEY.parse(record.key).type == "COMMIT"
    assert record_constructs.END_TRANSACTION_MARKER.parse(record.value).coordinator_epoch == 13
    assert parse_control_key(None) is parse_control_key(b"abc") is parse_end_marker(record.key, b"") is None


def test_stamping_a_producer() -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v")
    data = bytearray(builder.build())
    stamp_producer(data, 12, 3, 400)
    batch = only(data)
    assert batch.is_valid and (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (12, 3, 400)


def batch_of(count: int, codec: int = 0) -> bytearray:
    builder = RecordBatchBuilder(codec=codec)
    for i in range(count):
        builder.append(b"key", b"value", (), NOW + i)
    return bytearray(builder.build())


def test_entries_one_after_another_and_a_cut_tail() -> None:
    data = bytes(batch_of(1) + batch_of(2) + batch_of(3))
    batches = list(iter_batches(data))
    assert [batch.header.record_count for batch in batches if isinstance(batch, RecordBatch)] == [1, 2, 3]
    assert [batch.position for batch in batches] == [0, batches[0].size, batches[0].size + batches[1].size]
    for length in range(batches[2].position, len(data)):
        assert len(list(iter_batches(data[:length]))) == 2
    assert [batch.position for batch in iter_batches(data, batches[1].position)] == [b.position for b in batches[1:]]


@pytest.mark.parametrize(("position", "layout", "value"), [(8, ">i", 13), (8, ">i", -5), (8, ">i", 40), (16, ">B", 3)])
def test_impossible_entries(position: int, layout: str, value: int) -> None:
    data = batch_of(1)
    pack_into(layout, data, position, value)
    with pytest.raises(ProtocolError):
        list(iter_batches(data))


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 1000, 2**31 - 1])
def test_a_wrong_record_count(count: int) -> None:
    data = batch_of(3)
    pack_into(">i", data, 57, count)
    batch = only(data)
    scan = partial(scan_records, batch.plain_records(), count, 0, KEYED, 1)
    for read in (lambda: list(batch.records()), scan):
        with pytest.raises(ProtocolError):
            read()


def test_decoding_refuses_lengths_that_do_not_add_up() -> None:
    good = encode_record(0, 5, b"key", b"value", [("name", b"x")])

    def decode(data: bytes) -> None:
        decode_records(data, 0, 1, base_offset=0, base_timestamp=0, append_time=None)

    decode(good)
    for at in (0, 4, 8, 14, 15):
        for value in (0x00, 0x02, 0x40, 0x7E, 0x81):
            bad = bytearray(good)
            if bad[at] == value:
                continue
            bad[at] = value
            with pytest.raises(ProtocolError):
                decode(bytes(bad))


@given(st.binary(max_size=200), st.integers(0, 5))
def test_arbitrary_bytes_only_raise_protocol_errors(data: bytes, count: int) -> None:
    for read in (
        lambda: decode_records(data, 0, count, base_offset=0, base_timestamp=0, append_time=None),
        lambda: [list(batch.records()) for batch in iter_batches(data)],
    ):
        try:
            read()
        except (ProtocolError, KafkaError):
            continue


@given(st.randoms(use_true_random=False), st.sampled_from(list(Compression)), st.integers(1, 40))
def test_mutated_batches_only_raise_known_errors(rng: random.Random, codec: int, count: int) -> None:
    data = batch_of(count, codec)
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.5:
        del data[rng.randrange(HEADER_SIZE, len(data)) :]
    try:
        for batch in iter_batches(data):
            _ = batch.is_valid, batch.base_offset, batch.last_offset, batch.max_timestamp, batch.timestamp_type
            list(batch.records(max_size=1 << 20))
    except (ProtocolError, KafkaError):
        return


def test_crc_is_written_and_checked() -> None:
    data = batch_of(2)
    data[70] ^= 1
    assert not only(data).is_valid
    write_crc(memoryview(data))
    assert only(data).is_valid
