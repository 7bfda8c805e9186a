"""Layouts: where Kafka's documents say that fields stand, and what is read and written of some of them."""

import re
import struct
from pathlib import Path

import pytest

import barnabas.protocol
from barnabas.protocol.batch_header import BATCH_HEADER, BatchHeader
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.file_layouts import (
    OFFSET_INDEX_ENTRY,
    SNAPSHOT_ENTRY,
    SNAPSHOT_HEADER,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
)
from barnabas.protocol.layouts import Layout
from barnabas.protocol.legacy_records import MESSAGE_V0, MESSAGE_V1
from barnabas.protocol.record import ENTRY_FRONT, LEAST_SIZES, LOG_OVERHEAD, entry_size
from barnabas.protocol.record_codec import MIN_RECORD_SIZE
from barnabas.protocol.record_columns import ROW_SIZE


@pytest.mark.parametrize(
    ("layout", "size", "starts"),
    [
        (ENTRY_FRONT, 17, {"length": 8, "magic": 16}),
        (
            BATCH_HEADER,
            61,
            {
                "length": 8, "partition_leader_epoch": 12, "magic": 16, "crc": 17, "attributes": 21,
                "last_offset_delta": 23, "base_timestamp": 27, "max_timestamp": 35, "producer_id": 43,
                "producer_epoch": 51, "base_sequence": 53, "record_count": 57,
            },
        ),
        (MESSAGE_V0, 18, {"crc": 12, "magic": 16, "attributes": 17}),
        (MESSAGE_V1, 26, {"crc": 12, "magic": 16, "attributes": 17, "timestamp": 18}),
        (OFFSET_INDEX_ENTRY, 8, {"position": 4}),
        (TIME_INDEX_ENTRY, 12, {"relative_offset": 8}),
        (TRANSACTION_INDEX_ENTRY, 34, {"last_stable_offset": 26}),
        (SNAPSHOT_HEADER, 10, {"crc": 2}),
        (SNAPSHOT_ENTRY, 46, {"current_txn_first_offset": 38}),
    ],
)  # fmt: skip
def test_where_fields_stand(layout: Layout[tuple[int, ...]], size: int, starts: dict[str, int]) -> None:
    assert layout.size == size
    assert {name: layout.at(name) for name in starts} == starts


COMPILED = {
    "SIZE_AT": "length", "LEADER_EPOCH_AT": "partition_leader_epoch", "MAGIC_AT": "magic", "CRC_AT": "crc",
    "ATTRIBUTES_AT": "attributes", "LAST_DELTA_AT": "last_offset_delta", "BASE_TIMESTAMP_AT": "base_timestamp",
    "MAX_TIMESTAMP_AT": "max_timestamp", "PRODUCER_ID_AT": "producer_id", "SEQUENCE_AT": "base_sequence",
    "COUNT_AT": "record_count",
}  # fmt: skip
"""What compiled code calls the fields of a batch header."""


def test_compiled_code_has_the_fields_where_they_are() -> None:
    text = (Path(barnabas.protocol.__file__).parent / "speedups" / "speedups.h").read_text()
    constants = {name: int(number) for name, number in re.findall(r"\b([A-Z_]+) = (\d+)", text)}
    stated = {name: at for name, at in constants.items() if name.endswith("_AT")}
    assert stated == {name: BATCH_HEADER.at(field) for name, field in COMPILED.items()}
    sizes = {"HEADER_SIZE": BATCH_HEADER.size, "LOG_OVERHEAD": LOG_OVERHEAD, "MIN_RECORD_SIZE": MIN_RECORD_SIZE}
    assert {name: constants[name] for name in sizes} == sizes
    assert constants["ROW_SIZE"] == ROW_SIZE


def test_parts_of_a_layout_are_parts_of_the_whole() -> None:
    header = BatchHeader(*range(1, 14))
    data = b"?" + BATCH_HEADER.struct.pack(*header) + b"?"
    assert BATCH_HEADER.read(data, 1) == header
    some = BATCH_HEADER.reader("length", "magic", "record_count")
    assert some(data, 1) == (header.length, header.magic, header.record_count)
    span = BATCH_HEADER.span("producer_id", "base_sequence")
    assert span.unpack_from(data, 1 + BATCH_HEADER.at("producer_id")) == header[9:12]
    patched = bytearray(data[1:])
    BATCH_HEADER.patch(patched, crc=0xFFFFFFFF, attributes=-1)
    assert BATCH_HEADER.read(patched) == header._replace(crc=0xFFFFFFFF, attributes=-1)


def test_entries_of_a_file_end_before_a_torn_one() -> None:
    data = struct.pack(">4i", 1, 2, 3, 4)
    for torn in range(8):
        assert list(OFFSET_INDEX_ENTRY.read_all(data + bytes(torn))) == [(1, 2), (3, 4)]


@pytest.mark.parametrize("magic", [-128, -1, 0, 1, 2, 3, 127])
def test_what_no_walk_may_hop_over(magic: int) -> None:
    def size_of(length: int) -> int:
        return entry_size(b"?" + ENTRY_FRONT.struct.pack(0, length, 0, magic), 1)

    least = LEAST_SIZES[magic] - 12 if 0 <= magic <= 2 else 1 << 32
    for length in (-(2**31), -100, -12, -1, 0, 13, 14, 21, 22, 48, 49, 2**31 - 1):
        if length < least:
            with pytest.raises(ProtocolError, match=f"length {length} and magic {magic}"):
                size_of(length)
        else:
            assert size_of(length) == length + 12
