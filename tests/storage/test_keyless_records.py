"""Records without a key have no place in a compacted log: refused whole, whatever their format and codec."""

from __future__ import annotations

import pytest
from tests.cases import in_one_test
from tests.storage.cleaning.compacted import new_log
from tests.storage.logs import NOW_MS

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.simulation.disk import SimDisk
from barnabas.storage.log import Log
from barnabas.storage.log_validator import AppendRules, RecordValidationError

ZSTD = 4
KEYS = (b"a", None, b"", None)
FORMATS = [(0, codec) for codec in (0, 1, 2, 3)] + [(1, codec) for codec in (0, 1, 2, 3)]
FORMATS += [(2, codec) for codec in range(ZSTD + 1)]


def records(magic: int, codec: int, keys: tuple[bytes | None, ...]) -> memoryview:
    if magic < 2:
        entries = [Record(index, NOW_MS if magic else -1, key, b"v") for index, key in enumerate(keys)]
        return memoryview(bytearray(build_message_set(entries, magic=magic, codec=codec)))
    builder = RecordBatchBuilder(codec=codec)
    for key in keys:
        builder.append(key, b"v", (), NOW_MS)
    return memoryview(bytearray(builder.build()))


def append(log: Log, data: memoryview) -> int:
    return log.append_as_leader(data, leader_epoch=0, rules=AppendRules()).last_offset


@in_one_test("policy", ["compact", "compact,delete"])
@in_one_test("format_version", ["0.9.0", "0.10.0", "3.0"])
@in_one_test(("magic", "codec"), FORMATS)
def test_a_batch_with_keyless_records_is_refused_whole(
    magic: int, codec: int, format_version: str, policy: str
) -> None:
    log = new_log(SimDisk(), cleanup_policy=policy, message_format_version=format_version, segment_bytes=1 << 20)
    with pytest.raises(RecordValidationError) as refused:
        append(log, records(magic, codec, KEYS))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    at = [index for index, _ in refused.value.record_errors]
    # Uncompressed old messages are each a batch of their own, of which the first wrong one ends the walk.
    assert at == ([0] if magic < 2 and codec == 0 else [1, 3])
    assert {reason for _, reason in refused.value.record_errors} == {
        "Compacted topic cannot accept message without key"
    }
    assert (log.log_end_offset, log.size) == (0, 0)
    if codec < ZSTD or log.config.message_magic == 2:  # old formats do not have it
        assert append(log, records(magic, codec, (b"a", b"", b"c"))) == 2


def test_what_is_not_compacted_takes_them() -> None:
    log = new_log(SimDisk(), cleanup_policy="delete", segment_bytes=1 << 20)
    for end, (magic, codec) in enumerate(FORMATS, start=1):
        assert append(log, records(magic, codec, KEYS)) == 4 * end - 1
