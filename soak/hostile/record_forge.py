"""Malformed record batches and message sets with valid CRCs: wrong counts, sizes and deltas, bombs, nested wrappers."""

from __future__ import annotations

import random
from collections.abc import Callable

from barnabas.protocol.batch_header import HEADER, HEADER_SIZE, write_crc
from barnabas.protocol.compression import Compression, compress
from barnabas.protocol.legacy_records import encode_message
from barnabas.protocol.record import LOG_OVERHEAD
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.protocol.record_codec import encode_record

BOMB_BYTES = 160 << 20
LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
GZIP_HEADER = b"\x1f\x8b\x08" + bytes(7)
CODECS = tuple(Compression)
FIELDS = (
    *("base_offset", "length", "epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp"),
    *("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count"),
)


def valid_batch(rng: random.Random, codec: int = 0, **producer: int) -> bytes:
    """Return a valid batch."""
    builder = RecordBatchBuilder(codec=codec, **producer)  # type: ignore[arg-type]
    for _ in range(rng.randint(1, 5)):
        key = rng.choice((None, b"", b"key"))
        builder.append(key, rng.randbytes(rng.choice((0, 1, 30))), [("h", b"x")] * rng.randint(0, 2), 1_700_000_000_000)
    return builder.build()


def rewrite(batch: bytes, payload: bytes | None = None, **fields: int) -> bytes:
    """Return the batch with other header fields or another payload, and the correct length and CRC."""
    header = HEADER.unpack_from(batch)
    body = batch[HEADER_SIZE:] if payload is None else payload
    values = dict(zip(FIELDS, header, strict=True)) | {"length": HEADER_SIZE - LOG_OVERHEAD + len(body)} | fields
    changed = bytearray(HEADER.pack(*values.values()) + body)
    if fields.get("length") is None:
        write_crc(memoryview(changed))
    return bytes(changed)


def bombs() -> list[bytes]:
    """Return a small batch for each codec that expands beyond the memory limit of any broker."""
    empty = RecordBatchBuilder()
    empty.append(None, b"")
    batch = empty.build()
    zeros = bytes(BOMB_BYTES)
    snappy_lie = b"\xff\xff\xff\xff\x0f" + b"\0" * 40
    payloads = {
        Compression.GZIP: [compress(Compression.GZIP, zeros, level=9)],
        Compression.ZSTD: [compress(Compression.ZSTD, zeros)],
        Compression.LZ4: [compress(Compression.LZ4, zeros[: 96 << 20])],
        Compression.SNAPPY: [snappy_lie, compress(Compression.SNAPPY, zeros[: 16 << 20])],
    }
    return [
        rewrite(batch, payload, attributes=codec, last_offset_delta=count - 1, record_count=count)
        for codec, packed in payloads.items()
        for payload in packed
        for count in (1, 2**31 - 1)
        if len(payload) < 1_000_000
    ]


def malformed_batch(rng: random.Random) -> bytes:
    """Return a batch whose header contradicts its records, with a valid CRC."""
    codec = rng.choice(CODECS)
    batch = valid_batch(rng, codec)
    count = HEADER.unpack_from(batch)[-1]
    extreme = rng.choice((-1, 0, 1, 2**31 - 1, -(2**31), 100_000, count + 1))
    variants: tuple[Callable[[], bytes], ...] = (
        lambda: rewrite(batch, record_count=extreme),
        lambda: rewrite(batch, last_offset_delta=extreme),
        lambda: rewrite(batch, record_count=extreme, last_offset_delta=extreme - 1 if extreme > -(2**31) else 0),
        lambda: rewrite(batch, length=extreme),
        lambda: rewrite(batch, attributes=rng.getrandbits(15)),
        lambda: rewrite(batch, magic=rng.choice((0, 1, 3, 127, -1))),
        lambda: rewrite(batch, base_timestamp=rng.choice((-(2**63), 2**63 - 1, -1)), max_timestamp=-1),
        lambda: rewrite(batch, max_timestamp=rng.choice((-(2**63), 2**63 - 1))),
        lambda: rewrite(batch, base_offset=rng.choice((-1, 2**63 - 1, -(2**63)))),
        lambda: rewrite(
            batch,
            producer_id=rng.choice((0, 1, 2**63 - 1, -2)),
            producer_epoch=rng.choice((-1, 0, 32767, -32768)),
            base_sequence=rng.choice((-1, 0, 2**31 - 1, -(2**31))),
        ),
        lambda: rewrite(batch, attributes=0x20 | rng.choice((0, 0x10)), producer_id=3, producer_epoch=0),
        lambda: rewrite(batch, payload=rng.randbytes(rng.randint(0, 300))),
        lambda: rewrite(batch, payload=compress(codec, malformed_records(rng))),
        lambda: batch[: rng.randint(0, len(batch))],
        lambda: batch + batch,
        lambda: batch + rng.randbytes(rng.randint(1, 80)),
        lambda: batch,
    )
    return rng.choice(variants)()


def malformed_records(rng: random.Random) -> bytes:
    """Return records with wrong lengths, deltas or header counts."""
    record = bytearray(encode_record(0, 0, b"key", b"value", [("h", b"v")]))
    if rng.random() < 0.5:
        record[rng.randrange(len(record))] = rng.choice((0x00, 0x01, 0x7F, 0x80, 0xFF, 0xFE))
    else:
        record += b"\xff" * rng.randint(1, 12)
    return bytes(record) * rng.randint(1, 3)


def legacy_message(value: bytes | None, *, magic: int, attributes: int, offset: int) -> bytes:
    """Return a message of format v0 or v1 with any attributes and a valid CRC."""
    return encode_message(offset, -1, None, value, magic=magic, attributes=attributes)


def nested(rng: random.Random, depth: int, magic: int) -> bytes:
    """Return wrapper messages inside wrapper messages, which clients must not send."""
    inner = legacy_message(b"core", magic=magic, attributes=0, offset=0)
    codec = rng.choice((Compression.GZIP, Compression.SNAPPY, Compression.LZ4))
    for _ in range(depth):
        packed = compress(codec, inner, magic=magic)
        inner = legacy_message(packed, magic=rng.choice((magic, magic, 1 - magic)), attributes=codec, offset=0)
    return inner


def malformed_message_set(rng: random.Random) -> bytes:
    """Return a message set of format v0 or v1, valid or malformed."""
    magic = rng.choice((0, 1))
    plain = b"".join(
        legacy_message(rng.randbytes(8), magic=magic, attributes=0, offset=rng.choice((0, number, 2**63 - 1, -1)))
        for number in range(rng.randint(1, 4))
    )
    codec = rng.choice((Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD))
    variants: tuple[Callable[[], bytes], ...] = (
        lambda: plain,
        lambda: plain[: rng.randint(0, len(plain))],
        lambda: nested(rng, rng.randint(1, 6), magic),
        lambda: legacy_message(compress(codec, plain, magic=magic), magic=magic, attributes=codec, offset=0),
        lambda: legacy_message(rng.randbytes(50), magic=magic, attributes=rng.randint(0, 127), offset=0),
        lambda: legacy_message(None, magic=magic, attributes=codec, offset=0),
        lambda: legacy_message(compress(codec, b""), magic=magic, attributes=codec, offset=0),
        lambda: legacy_message(compress(codec, malformed_batch(rng)), magic=magic, attributes=codec, offset=0),
        lambda: plain + valid_batch(rng),
    )
    return rng.choice(variants)()


def record_pool(rng: random.Random, size: int) -> list[bytes]:
    """Return records for Produce requests, most of them with one error."""
    pool = [malformed_message_set(rng) if rng.random() < 0.3 else malformed_batch(rng) for _ in range(size)]
    return pool + [valid_batch(rng, codec) for codec in CODECS for _ in range(size // 25)]


def blocks_without_output(size: int = 1 << 20) -> dict[str, tuple[int, bytes]]:
    """Return batches of `size` bytes of compressed blocks that expand to at most one byte each, with their codecs."""
    xerial = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1, 0, 0, 0, 1))
    zstd_head = b"\x28\xb5\x2f\xfd\x00\x58"
    return {
        "LZ4, empty": (Compression.LZ4, LZ4_HEADER + b"\x01\0\0\0\0" * (size // 5) + bytes(4)),
        "LZ4, stored": (Compression.LZ4, LZ4_HEADER + b"\x01\0\0\x80A" * (size // 5) + bytes(4)),
        "xerial, empty": (Compression.SNAPPY, xerial + b"\0\0\0\1\0" * (size // 5)),
        "xerial, a byte each": (Compression.SNAPPY, xerial + b"\0\0\0\3\1\0A" * (size // 7)),
        "xerial, heads": (Compression.SNAPPY, xerial * (size // 16)),
        "zstd, empty": (Compression.ZSTD, zstd_head + bytes(3) * (size // 3) + b"\1\0\0"),
        "zstd, a byte each": (Compression.ZSTD, zstd_head + b"\x08\0\0A" * (size // 4) + b"\1\0\0"),
        "zstd, runs of a byte": (Compression.ZSTD, zstd_head + b"\x0a\0\0A" * (size // 4) + b"\1\0\0"),
        "gzip, stored": (
            Compression.GZIP,
            GZIP_HEADER + b"\0\0\0\xff\xff" * (size // 5) + b"\1\0\0\xff\xff" + bytes(8),
        ),
        "gzip, with codes": (Compression.GZIP, GZIP_HEADER + gzip_block_without_output() * (size // 23) + bytes(8)),
    }


def gzip_block_without_output() -> bytes:
    """Return two deflate blocks of 11.5 bytes that define a Huffman code of one symbol, the end of the block."""
    bits: list[int] = []

    def put(value: int, count: int) -> None:
        bits.extend(value >> number & 1 for number in range(count))

    lengths = {18: 1, 1: 2, 0: 2}
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)
    for _ in range(2):
        put(0b100, 3)
        put(0, 10)
        put(len(order) - 4, 4)
        for symbol in order:
            put(lengths.get(symbol, 0), 3)
        for zeros in (138, 118):
            put(0, 1)
            put(zeros - 11, 7)
        put(0b0111, 4)
        put(0, 1)
    return bytes(sum(bits[at + number] << number for number in range(8)) for at in range(0, len(bits), 8))
