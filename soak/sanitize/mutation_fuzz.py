"""Call compiled functions with damaged input and compare each result with that of the Python twin.

    python -m soak.sanitize.mutation_fuzz --minutes 10 --first 0

A round is one seed: it builds valid bytes, damages them, and calls every function that reads untrusted bytes. A
difference ends the run and prints the seed. If the extension is built with sanitizers, an invalid memory access also
ends the run.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

from barnabas.protocol.batch_header import HEADER_SIZE, BatchHeader, write_crc
from barnabas.protocol.batch_run import BatchRun
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.header_columns import header_columns
from barnabas.protocol.joint_produce import (
    group_produces,
    group_produces_py,
    join_produces,
    join_produces_py,
    locate_batches,
    locate_batches_py,
)
from barnabas.protocol.native import native
from barnabas.protocol.produce_entries import CompactProduceResponse, read_generally, read_produce, write_generally
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.protocol.record_codec import (
    RecordRun,
    decode_records,
    decode_records_here,
    encode_record,
    encode_records,
    encode_records_here,
)
from barnabas.protocol.record_scan import HIGHEST, LOWEST, RecordRules, scan_records, walk_records
from barnabas.protocol.replicated_batches import check_replicated_batches, check_replicated_batches_py
from barnabas.protocol.usual_batch import validate_and_stamp, validate_and_stamp_py
from barnabas.storage.cleaning.batch_filter import BatchFilter
from barnabas.storage.cleaning.batch_index import index_batches, nothing_indexed
from barnabas.storage.cleaning.offset_map import ExactOffsetMap, SkimpyOffsetMap

STAMPS = (0, 1, -1, 63, 64, 8191, 8192, -8192, 2**40, 2**63 - 1, -(2**63))
NOW = 1_700_000_000_000
RULES: tuple[RecordRules, ...] = (
    (LOWEST, HIGHEST, False, False),
    (LOWEST, HIGHEST, True, True),
    (NOW - 100, NOW + 100, False, True),
    (-(2**70), 2**70, True, False),
)
BYTES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def damaged(rng: random.Random, data: bytes | bytearray) -> bytearray:
    """Return a copy with up to four changes: bytes changed, ranges removed or repeated, the end cut off."""
    copy = bytearray(data)
    for _ in range(rng.randrange(5)):
        if not copy:
            break
        at, size = rng.randrange(len(copy)), rng.randrange(1, 12)
        match rng.randrange(6):
            case 0:
                del copy[at : at + size]
            case 1:
                copy[at:at] = copy[at : at + size]
            case 2:
                del copy[at:]
            case 3:
                copy[at : at + size] = bytes([rng.choice(BYTES)]) * len(copy[at : at + size])
            case _:
                copy[at] = rng.choice((*BYTES, copy[at] ^ 1 << rng.randrange(8)))
    return copy


def records(rng: random.Random, count: int) -> bytearray:
    """Return valid records with sizes and timestamps at the limits of their varint lengths."""
    data = bytearray()
    for index in range(count):
        key = rng.choice((None, b"", b"k", b"key-%d" % rng.randrange(4), bytes(200)))
        value = rng.choice((None, b"", bytes(rng.choice((1, 50, 63, 64, 130, 8191, 9000)))))
        headers: Any = rng.choice(([], [], [("h", None)], [("", b"v"), ("n" * 80, bytes(90))]))
        data += encode_record(index, rng.choice(STAMPS), key, value, headers)
    return data


def batch(rng: random.Random, base_offset: int) -> bytearray:
    """Return a valid batch of format v2 without compression."""
    builder = RecordBatchBuilder(base_offset=base_offset)
    for _ in range(rng.randrange(1, 12)):
        key = rng.choice((None, b"k%d" % rng.randrange(5)))
        value = rng.choice((None, b"v", bytes(300)))
        builder.append(key, value, rng.choice(([], [("h", b"x")])), NOW + rng.randrange(200))
    return bytearray(builder.build())


def outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return the result of a call, or the name of its error type."""
    try:
        return function(*arguments, **named)
    except ProtocolError as error:
        return type(error).__name__


def check(name: str, compiled: Any, plain: Any) -> None:
    assert compiled == plain, f"{name}: the compiled result is {compiled!r:.300}, Python's is {plain!r:.300}"


def fuzz_records(rng: random.Random) -> None:
    count = rng.randrange(1, 30)
    data = bytes(damaged(rng, records(rng, count)))
    base = rng.choice((NOW, 0, -1, HIGHEST, LOWEST))
    rules, most = rng.choice(RULES), rng.choice((0, 1, 1000))
    declared_count = rng.choice((count, count, count + 1, 0, 2**31 - 1))
    if declared_count < 1000:
        check(
            "scan_records",
            outcome(scan_records, data, declared_count, base, rules, most),
            outcome(walk_records, data, declared_count, base, rules, most),
        )
    append_time = rng.choice((None, 5))
    base_values = {"base_offset": rng.choice((0, 7, 2**62)), "base_timestamp": base % 2**50, "append_time": append_time}
    position = rng.choice((0, 0, len(data) // 2))
    check(
        "decode_records",
        outcome(decode_records, data, position, count, **base_values),
        outcome(decode_records_here, data, position, count, **base_values),
    )


def fuzz_take_batch(rng: random.Random) -> None:
    data = damaged(rng, batch(rng, 0))
    if len(data) > HEADER_SIZE and rng.random() < 0.8:
        write_crc(memoryview(data))
    rules, size = rng.choice(RULES), rng.choice((10_000, 2**40))
    plain = bytes(damaged(rng, data[HEADER_SIZE:])) if rng.random() < 0.2 else None
    first, second = bytearray(data), bytearray(data)
    check(
        "validate_and_stamp",
        validate_and_stamp(memoryview(first), plain, (5, 3), size, rules),
        validate_and_stamp_py(memoryview(second), plain, (5, 3), size, rules),
    )
    check("validate_and_stamp, bytes", first, second)


def scanned(data: bytes, *, use_native: bool, check_crc: bool) -> tuple[BatchRun, Any]:
    run = BatchRun(use_native=use_native)
    run.start(data)
    stopped = run.scan(0, check_crc=check_crc)
    columns = run.records
    rows = [
        list(column[: columns.count])
        for column in (columns.offsets, columns.timestamps, columns.starts, columns.key_starts, columns.key_sizes)
    ]
    return run, (stopped, run.count, [run.batch(i) for i in range(run.count)], rows)


def fuzz_batches(rng: random.Random) -> None:
    whole, offset = bytearray(), 0
    for _ in range(rng.randrange(1, 6)):
        one = batch(rng, offset)
        whole += one
        offset += 20
    data = bytes(damaged(rng, whole))
    check_crc = rng.random() < 0.3
    run, compiled = scanned(data, use_native=True, check_crc=check_crc)
    _, plain = scanned(data, use_native=False, check_crc=check_crc)
    check("scan_batches", compiled, plain)
    before, interval = nothing_indexed(0), rng.choice((0, 100, 4096))
    check(
        "index_batches",
        index_batches(memoryview(data), interval, before),
        index_batches(memoryview(data), interval, before, use_native=False),
    )
    columns = [
        outcome(lambda native_: [list(one) for one in header_columns(data, run.records, use_native=native_)], use)
        for use in (True, False)
    ]
    check("header_columns", *columns)
    fuzz_cleaning(rng, run)


def fuzz_cleaning(rng: random.Random, run: BatchRun) -> None:
    kind: Any = rng.choice((SkimpyOffsetMap, ExactOffsetMap))
    memory_bytes, seed = rng.choice((200, 600, 4000)), rng.randrange(2**32)
    maps, kept = [], []
    for use_native in (True, False):
        offsets = kind(memory_bytes, use_native=use_native)
        put = offsets.put_many(run.buffer, run.records)
        found = offsets.get_many(run.buffer, run.records)
        maps.append((put, offsets.size, offsets.latest_offset, offsets.probes, list(found)))
        chance = random.Random(seed)
        cleaner = BatchFilter(
            latest_offset=chance.choice((10, 1000)),
            now_ms=NOW + chance.choice((0, 10**9)),
            delete_retention_ms=chance.choice((0, 10**6)),
            keep_empty=[19, 39],
            use_native=use_native,
        )
        output = bytearray()
        result = cleaner.filter(run, found, output, 0)
        kept.append((result, bytes(output[: result.end])))
    check("offset map", *maps)
    check("filter_batches", *kept)


def produce_frame(rng: random.Random) -> tuple[int, bytearray]:
    """Return a random version and a Produce request of that version, with its header."""
    version = rng.choice((3, 7, 8, 9, 12, 13))
    flexible = version >= 9
    out = bytearray((0).to_bytes(2, "big") + version.to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\0\2me")
    one = batch(rng, 0)
    if flexible:
        topic = bytes(range(16)) if version == 13 else b"\2t"
        size = len(one) + 1
        varint = bytearray()
        while size > 0x7F:
            varint.append(size & 0x7F | 0x80)
            size >>= 7
        varint.append(size)
        out += b"\0\0\0\1\0\0\x10\0\2" + topic + b"\2\0\0\0\0" + varint + one + b"\0\0\0"
    else:
        out += b"\xff\xff\0\1\0\0\x10\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0" + len(one).to_bytes(4, "big") + one
    return version, out


def read_outcome(function: Callable[..., Any], version: int, data: memoryview, end: int) -> Any:
    try:
        header, entries = function(version, data, 0, end)
    except (ProtocolError, AssertionError):
        return None
    appends = [(topic, index, bytes(part)) for topic, index, part in entries.entries]
    return header, entries.transactional_id, entries.acks, entries.timeout_ms, appends


def fuzz_produce(rng: random.Random) -> None:
    version, frame = produce_frame(rng)
    data = damaged(rng, frame)
    if len(data) < 4:
        return
    data[:4] = frame[:4]  # the dispatcher reads the API key and version before it selects a decoder
    view = memoryview(bytes(data))
    end = rng.choice((len(data), len(data), rng.randrange(4, len(data) + 1)))
    check(
        f"read_produce {version}",
        read_outcome(read_produce, version, view, end),
        read_outcome(read_generally, version, view, end),
    )


def has_even_crc(header: bytes) -> bool:
    """Accept about half of the batches with a producer id."""
    return BatchHeader.read(header).crc % 2 == 0


def fuzz_joint_produce(rng: random.Random) -> None:
    """Compare the joint produce functions.

    Only the twin reads tagged fields and bytes after a request, so that its parts may end later.
    """
    buffer, parts = bytearray(b"?"), []
    for _ in range(rng.randrange(1, 5)):
        start = len(buffer)
        for _ in range(rng.randrange(1, 4)):
            frame = produce_frame(rng)[1]
            buffer += damaged(rng, len(frame).to_bytes(4, "big") + frame) if rng.random() < 0.3 else b""
            buffer += len(frame).to_bytes(4, "big") + frame
        parts.append((start, len(buffer)))
    view, rules = memoryview(buffer), rng.choice(RULES)
    groups, twins = group_produces(view, parts), group_produces_py(view, parts)
    assert all(set(numbers) <= set(twins[key]) for key, numbers in groups.items()), "group_produces"
    for key in groups:
        limits = rng.choice((61, 1000, 10**6)), 7, rng.choice((0, 1, 10**6))
        compiled = join_produces(view, parts, key, (2**40, 3), limits, rules, has_even_crc)
        plain = join_produces_py(view, parts, key, (2**40, 3), limits, rules, has_even_crc)
        if all(ours == theirs for ours, theirs in zip(compiled[3], plain[3], strict=True)):
            check("join_produces", compiled, plain)
        data = memoryview(damaged(rng, compiled[0]))
        check("locate_batches", locate_batches(data, 5), locate_batches_py(data, 5))
        place = data, rng.choice((0, 2**40)), rng.choice((-1, 2, 3))
        check("check_replicated", tuple(check_replicated_batches(*place)), check_replicated_batches_py(*place))


def fuzz_written(rng: random.Random) -> None:
    version = rng.randrange(14)
    topics: list[Any] = [bytes([i]) * 16 for i in range(3)] if version == 13 else ["t", "x" * 300, "ü"]
    partitions = [(rng.choice(topics), rng.randrange(5)) for _ in range(rng.randrange(1, 40))]
    results = [(rng.choice((0, 2**62)), 9, 8, rng.choice((-1, NOW)), 0) for _ in partitions]
    answer = CompactProduceResponse(partitions, results)
    check("write_produced", answer.frame(version, 3), write_generally(answer, version, 3))
    keys = [rng.choice((None, b"", bytes(rng.choice((1, 63, 64, 8192))))) for _ in range(20)]
    run = RecordRun(rng.choice((None, keys)), keys[::-1], b"\0", NOW)
    first, delta, room = rng.randrange(20), rng.choice((0, 63, 8191)), rng.choice((-1, 0, 500, 10**6))
    check(
        "encode_records",
        encode_records(run, first, offset_delta=delta, timestamp_delta=delta, room=room),
        encode_records_here(run.keys, run.values, run.headers, (first, delta, delta), room),
    )


ROUNDS = (fuzz_records, fuzz_take_batch, fuzz_batches, fuzz_produce, fuzz_joint_produce, fuzz_written)


def play(seed: int) -> None:
    """Play one round of every function. Raises AssertionError on a difference."""
    for number, function in enumerate(ROUNDS):
        function(random.Random(seed * len(ROUNDS) + number))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="stop after this many minutes (default: 10)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default: 0)")
    arguments = parser.parse_args()
    assert native is not None, "the compiled extension is not installed"
    deadline = time.monotonic() + 60 * arguments.minutes
    seed = arguments.first
    while time.monotonic() < deadline:
        try:
            play(seed)
        except BaseException:
            print(f"seed {seed}", flush=True)
            raise
        seed += 1
    print(f"{seed - arguments.first} seeds without a difference")


if __name__ == "__main__":
    main()
