"""Codecs: the bytes that others write and read, bombs, garbage."""

import gzip
import os
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from functools import cache
from struct import pack

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from soak.hostile.record_forge import blocks_without_output
from tests.cases import in_one_test

from barnabas.protocol import compression, zstd_frame, zstd_kept_context
from barnabas.protocol.compression import (
    CODEC_BY_CONFIG_NAME,
    Compression,
    LongDecompressionError,
    Room,
    compress,
    decompress,
    give_back,
    look_into,
    take_room,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.lz4_frame import xxhash32_short

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKED = [codec for codec in Compression if codec != Compression.NONE]
XERIAL_HEADER = b"\x82SNAPPY\x00" + pack(">ii", 1, 1)
MEGABYTE = 1 << 20


@pytest.fixture(autouse=True, scope="module", params=["with zstandard", "without zstandard"])
def is_context_kept(request: pytest.FixtureRequest) -> Iterator[bool]:
    """All is the same with the library of the extra fast-zstd and without it."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (zstd_frame, zstd_kept_context):
            patch.delitem(sys.modules, module.__name__)
        if request.param == "without zstandard":
            patch.setitem(sys.modules, "zstandard", None)
        compression._module.cache_clear()
        yield request.param == "with zstandard"
    compression._module.cache_clear()


def refused(codec: int, data: bytes, max_size: int = MEGABYTE, magic: int = 2) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, max_size=max_size, magic=magic)
    return caught.value.code


@in_one_test("codec", list(Compression))
@in_one_test("data", [b"", b"x", b"hello" * 9999, os.urandom(200_000), bytes(300_000)])
def test_round_trip_of_every_kind_of_buffer(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, max_size=len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), max_size=len(data)) == data
    assert compress(codec, memoryview(bytearray(data))) == packed


@given(st.sampled_from(list(Compression)), st.binary(max_size=5000), st.sampled_from([0, 1, 2]))
def test_round_trip(codec: Compression, data: bytes, magic: int) -> None:
    assert decompress(codec, compress(codec, data, magic=magic), max_size=len(data), magic=magic) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Compression.GZIP, [-1, 1, 9]), (Compression.LZ4, [1, 9, 17]), (Compression.ZSTD, [-5, 1, 3, 19])],
)
def test_levels(codec: Compression, levels: list[int]) -> None:
    data = "".join(f"{i * 7919 % 1000},{i * i % 977};" for i in range(5000)).encode()
    packed = {compress(codec, data, level=level) for level in levels}
    assert len(packed) > 1
    assert all(decompress(codec, one, max_size=len(data)) == data for one in packed)


def test_names_of_the_configuration() -> None:
    assert CODEC_BY_CONFIG_NAME["uncompressed"] is Compression.NONE
    assert [CODEC_BY_CONFIG_NAME[codec.config_name] for codec in Compression] == list(Compression)


def test_gzip_of_others() -> None:
    data = b"some data" * 1000
    assert decompress(Compression.GZIP, gzip.compress(data), max_size=MEGABYTE) == data
    two_members = gzip.compress(data[:100]) + gzip.compress(data[100:])
    assert decompress(Compression.GZIP, two_members, max_size=len(data)) == data
    assert refused(Compression.GZIP, two_members, len(data) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert gzip.decompress(compress(Compression.GZIP, data)) == data


def test_zstd_of_streaming_producers() -> None:
    data = b"some data" * 10_000
    compressor = zstd.ZstdCompressor()
    streamed = compressor.compress(data[:500]) + compressor.compress(data[500:]) + compressor.flush()
    assert zstd.get_frame_info(streamed).decompressed_size is None
    assert decompress(Compression.ZSTD, streamed, max_size=len(data)) == data
    assert decompress(Compression.ZSTD, streamed + zstd.compress(b"more"), max_size=MEGABYTE) == data + b"more"


def test_snappy_is_written_as_xerial_in_blocks_of_32_kib() -> None:
    data = os.urandom(40_000)
    packed = compress(Compression.SNAPPY, data)
    assert packed.startswith(XERIAL_HEADER)
    first = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == data[: 32 * 1024]
    assert bytes(cramjam.snappy.decompress_raw(packed[24 + first :])) == data[32 * 1024 :]


def test_snappy_of_others() -> None:
    data = b"some data" * 1000
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Compression.SNAPPY, raw, max_size=len(data)) == data
    stream = compress(Compression.SNAPPY, data)
    assert decompress(Compression.SNAPPY, stream + stream, max_size=2 * len(data)) == data * 2


@in_one_test("level", [None, 1, 9, 12])
@in_one_test("data", [b"", b"some data" * 20_000, os.urandom(200_000)])
def test_lz4_is_the_frame_that_java_reads(data: bytes, level: int | None) -> None:
    packed = compress(Compression.LZ4, data, level=level)
    info = lz4.frame.get_frame_info(packed)
    assert lz4.frame.decompress(packed) == data
    assert (info["block_size"], info["block_linked"], info["content_size"]) == (65536, False, 0)
    assert not info["content_checksum"] and not info["block_checksum"]


def test_lz4_of_a_high_level_is_smaller_and_of_level_9_what_kafka_takes_for_fast() -> None:
    data = "".join(f"{i * 7919 % 1000},{i * i % 977};" for i in range(30_000)).encode()
    sizes = {level: len(compress(Compression.LZ4, data, level=level)) for level in (1, 3, 9, 12, 17)}
    assert sizes[9] == len(compress(Compression.LZ4, data)) > sizes[1] == sizes[3] > sizes[12] == sizes[17]


@pytest.mark.parametrize("block_size", [lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB])
@pytest.mark.parametrize("with_extras", [True, False])
def test_lz4_of_others(block_size: int, with_extras: bool) -> None:
    for data in (b"", b"some data" * 50_000, os.urandom(100_000)):
        packed = lz4.frame.compress(
            data,
            block_size=block_size,
            block_linked=False,
            store_size=with_extras,
            content_checksum=with_extras,
            block_checksum=with_extras,
        )
        assert decompress(Compression.LZ4, packed, max_size=len(data)) == data


@pytest.mark.parametrize("size", [1000, 300_000])
@pytest.mark.parametrize("position", [-1, -9], ids=["content", "last-block"])
def test_lz4_checksums_need_not_hold(size: int, position: int) -> None:
    data = random.Random(7).randbytes(size)
    packed = bytearray(
        lz4.frame.compress(
            data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, block_checksum=True, content_checksum=True
        )
    )
    packed[position] ^= 1
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(packed)
    assert decompress(Compression.LZ4, packed, max_size=len(data)) == data


def test_lz4_with_linked_blocks_is_refused_as_java_does() -> None:
    packed = lz4.frame.compress(b"some data" * 50_000, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True)
    assert refused(Compression.LZ4, packed) is ErrorCode.CORRUPT_MESSAGE


def test_what_is_looked_into_stays_until_the_room_is_used_again() -> None:
    first, second = os.urandom(100_000), os.urandom(100_000)
    one, other = compress(Compression.LZ4, first), compress(Compression.LZ4, second)
    room = take_room()
    look_into(Compression.LZ4, one, room, max_size=MEGABYTE)  # has made it large enough
    seen = look_into(Compression.LZ4, one, room, max_size=MEGABYTE)
    assert decompress(Compression.LZ4, other, max_size=MEGABYTE) == second
    assert seen == first, "the room is nobody else's"
    give_back(room)
    assert take_room() is room
    assert look_into(Compression.LZ4, other, room, max_size=MEGABYTE) == second
    assert seen == second
    give_back(room)


@pytest.mark.parametrize("block_size", [lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB])
def test_room_for_a_large_lz4_frame_is_not_kept(block_size: int) -> None:
    data = random.Random(7).randbytes(MEGABYTE) * 20
    packed = lz4.frame.compress(data, block_size=block_size, block_linked=False)
    tracemalloc.start()
    try:
        assert decompress(Compression.LZ4, packed, max_size=len(data)) == data
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 5 * MEGABYTE


def test_lz4_header_checksum_of_message_format_0() -> None:
    broken = compress(Compression.LZ4, b"some data", magic=0)
    right = compress(Compression.LZ4, b"some data", magic=1)
    assert broken[6] == xxhash32_short(broken[:6]) >> 8 & 0xFF
    assert right[6] == xxhash32_short(right[4:6]) >> 8 & 0xFF
    assert broken[6] != right[6] and broken[7:] == right[7:]
    for packed in (broken, right):
        assert decompress(Compression.LZ4, packed, max_size=100, magic=0) == b"some data"
    assert refused(Compression.LZ4, broken, magic=1) is ErrorCode.CORRUPT_MESSAGE


def test_short_xxhash32_against_known_values() -> None:
    known = {b"": 0x02CC5D05, b"a": 0x550D7456, b"abc": 0x32D153FF}
    assert {data: xxhash32_short(data) for data in known} == known


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_and_cut_streams(codec: Compression) -> None:
    packed = compress(codec, os.urandom(1000) + bytes(50_000))
    assert refused(codec, b"") is ErrorCode.CORRUPT_MESSAGE
    assert refused(codec, b"\xff" * 50) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
    for length in {1, 5, 15, 17, 19, 30, len(packed) // 2, len(packed) - 1}:
        assert refused(codec, packed[:length]) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE), length


@in_one_test("codec", PACKED)
@in_one_test("size", [4 * MEGABYTE - 1, 4 * MEGABYTE, 4 * MEGABYTE + 1, 8 * MEGABYTE, 9 * MEGABYTE])
def test_output_of_several_steps(codec: Compression, size: int) -> None:
    plain = (os.urandom(10_000) * (size // 10_000 + 1))[:size]
    packed = compress(codec, plain)
    assert decompress(codec, packed, max_size=size) == plain
    assert refused(codec, packed, size - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(codec, packed[:-20], size) is ErrorCode.CORRUPT_MESSAGE


def test_unknown_codec() -> None:
    assert refused(5, b"") is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(KafkaError):
        compress(7, b"")


@given(st.sampled_from(PACKED), st.randoms(use_true_random=False), st.binary(max_size=300))
def test_mutations_only_raise_kafka_errors(codec: Compression, rng: random.Random, data: bytes) -> None:
    packed = bytearray(compress(codec, data + bytes(500)))
    for _ in range(rng.randrange(1, 4)):
        packed[rng.randrange(len(packed))] = rng.randrange(256)
    try:
        assert len(decompress(codec, packed, max_size=100_000)) <= 100_000
    except KafkaError as error:
        assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


@cache
def bombs() -> dict[str, tuple[Compression, bytes]]:
    """Up to a megabyte or so each, which would expand to hundreds."""
    zeros = bytes(64 * MEGABYTE)
    gzip_bomb = gzip.compress(zeros, 6) * 15
    streamed = zstd.ZstdCompressor()
    unsized = b"".join(streamed.compress(zeros) for _ in range(16)) + streamed.flush()
    lz4_block = lz4.frame.compress(
        bytes(4 * MEGABYTE), block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False
    )
    lz4_bomb = lz4_block[:7] + lz4_block[7:-4] * 64 + bytes(4)
    return {
        "gzip": (Compression.GZIP, gzip_bomb),
        "lz4": (Compression.LZ4, lz4_bomb),
        "zstd without size": (Compression.ZSTD, unsized),
        "zstd with size": (Compression.ZSTD, zstd.compress(zeros)),
        "snappy": (Compression.SNAPPY, compress(Compression.SNAPPY, zeros)),
        "snappy raw": (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        "snappy lying": (Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 50),
        "snappy lying within bounds": (Compression.SNAPPY, b"\x80\x80\x02" + b"\x00" * 50),
    }


BOMB_NAMES = [
    "gzip",
    "lz4",
    "zstd without size",
    "zstd with size",
    "snappy",
    "snappy raw",
    "snappy lying",
    "snappy lying within bounds",
]


@pytest.mark.parametrize("max_size", [64 * 1024, 16 * MEGABYTE])
def test_bombs_cost_little_time_and_memory(max_size: int) -> None:
    assert list(bombs()) == BOMB_NAMES
    for name, (codec, data) in bombs().items():
        tracemalloc.start()
        code = refused(codec, data, max_size)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        started = time.process_time()
        refused(codec, data, max_size)
        elapsed = time.process_time() - started
        expected = ErrorCode.CORRUPT_MESSAGE if "lying within" in name else ErrorCode.MESSAGE_TOO_LARGE
        assert code is expected, name
        assert elapsed < 0.1, (name, elapsed)
        assert peak < max_size + min(max_size, 8 * MEGABYTE) + 2 * len(data) + 64 * 1024, (name, peak)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("more", [False, True])
def test_large_batches_are_held_once(codec: Compression, more: bool) -> None:
    """What is just within bounds costs no more than what is refused, and comes out whole."""
    rng = random.Random(3)
    max_size = 13 * MEGABYTE + MEGABYTE // 2
    plain = b"".join(rng.randbytes(1024) * 16 for _ in range(14 * 64))[: max_size + more]
    packed = compress(codec, plain)
    room = take_room()
    tracemalloc.start()
    try:
        if more:
            with pytest.raises(KafkaError) as caught:
                look_into(codec, packed, room, max_size=max_size)
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        else:
            assert look_into(codec, packed, room, max_size=max_size) == plain
        assert tracemalloc.get_traced_memory()[1] < max_size * 9 / 8 + 6 * MEGABYTE
    finally:
        tracemalloc.stop()
        give_back(room)


BOMB_CHILD = """
import resource, sys
from barnabas.protocol.compression import decompress
from barnabas.protocol.errors import KafkaError
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(int(sys.argv[1]), data, max_size=1 << 20)
except KafkaError as error:
    print(int(error.code), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.verify
@pytest.mark.parametrize("name", BOMB_NAMES)
def test_bombs_in_a_process_of_their_own(name: str) -> None:
    """What the codecs allocate outside Python's own accounting shows in the resident size."""
    codec, data = bombs()[name]
    done = subprocess.run(
        [sys.executable, "-c", BOMB_CHILD, str(int(codec))], input=data, capture_output=True, check=True, timeout=60
    )
    code, grown_kib = map(int, done.stdout.split())
    assert code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)
    assert grown_kib < 16 * 1024


def zstd_frame_of(data: bytes, *, says_its_size: bool) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=says_its_size).compress(data)


@in_one_test("says_its_size", [True, False])
@in_one_test("size", [1, 16_000, 64 << 10, (64 << 10) + 1, 200_000, 5 << 20])
def test_zstd_frames_of_all_sizes_one_after_the_other(says_its_size: bool, size: int) -> None:
    for length in (size, 100, size):
        data = random.Random(length).randbytes(length)
        frame = zstd_frame_of(data, says_its_size=says_its_size)
        assert decompress(Compression.ZSTD, frame, max_size=length) == data
        assert decompress(Compression.ZSTD, frame + frame, max_size=2 * length) == 2 * data
        with pytest.raises(KafkaError) as too_large:
            decompress(Compression.ZSTD, frame, max_size=length - 1)
        assert too_large.value.code is ErrorCode.MESSAGE_TOO_LARGE
        for wrong in (frame[:-1], frame[: len(frame) // 2], frame + b"x"):
            with pytest.raises(KafkaError) as cut_off:
                decompress(Compression.ZSTD, wrong, max_size=2 * length)
            assert cut_off.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_zstd_frame_that_says_more_than_it_holds() -> None:
    frame = bytearray(zstd_frame_of(bytes(1000), says_its_size=True))
    at = frame.index((1000 - 256).to_bytes(2, "little"))
    for stated in (999, 60_000):
        frame[at : at + 2] = (stated - 256).to_bytes(2, "little")
        with pytest.raises(KafkaError) as wrong:
            decompress(Compression.ZSTD, bytes(frame), max_size=1 << 20)
        assert wrong.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_context_is_kept_from_frame_to_frame_where_that_can_be_had(is_context_kept: bool) -> None:
    frames = [zstd_frame_of(bytes(size), says_its_size=True) for size in (100, 200)]
    room = Room()
    contexts = []
    for frame in frames:
        look_into(Compression.ZSTD, frame, room, max_size=MEGABYTE)
        contexts.append(room.zstd)
    assert contexts[0] is contexts[1]
    assert (contexts[0] is not None) is is_context_kept


@pytest.mark.parametrize("name", list(blocks_without_output(100)))
def test_blocks_without_output_are_refused_soon(name: str) -> None:
    codec, data = blocks_without_output()[name]
    started = time.process_time()
    assert refused(codec, data, 24 * MEGABYTE) is ErrorCode.CORRUPT_MESSAGE
    assert time.process_time() - started < 0.1


@pytest.mark.parametrize("name", list(blocks_without_output(100)))
def test_a_caller_who_cannot_wait_opens_a_thousand_blocks_at_most(name: str) -> None:
    codec, data = blocks_without_output()[name]
    started = time.process_time()
    with pytest.raises(LongDecompressionError):
        look_into(codec, data, take_room(), max_size=24 * MEGABYTE, at_once=True)
    assert time.process_time() - started < 0.02


@pytest.mark.parametrize("name", list(blocks_without_output(100)))
def test_a_few_blocks_without_output_are_opened(name: str) -> None:
    codec, data = blocks_without_output(2000)[name]
    if name == "gzip, with codes":
        data = data[:-8] + b"\1\0\0\xff\xff" + bytes(8)
    assert len(set(bytes(look_into(codec, data, take_room(), max_size=MEGABYTE, at_once=True)))) <= 1


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD])
def test_noise_and_zeros_of_many_megabytes_are_no_blocks_without_output(codec: Compression) -> None:
    plain = random.Random(1).randbytes(3 * MEGABYTE) + bytes(20 * MEGABYTE)
    assert decompress(codec, compress(codec, plain), max_size=len(plain)) == plain
