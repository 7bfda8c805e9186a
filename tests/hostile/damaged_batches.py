"""Record batches under a right CRC, each wrong in one way, made field by field; and what a broker has to answer."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.batch_header import HEADER, HEADER_SIZE, write_crc
from barnabas.protocol.compression import Compression, compress
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record import LOG_OVERHEAD
from barnabas.protocol.varint import encode_varint

NONE, REFUSED = ErrorCode.NONE, ErrorCode.INVALID_RECORD
UNCHECKED_LENGTHS = (REFUSED, NONE)
"""Kafka does not compare the lengths of compressed records with their contents, which its consumers do."""
UNCHECKED_OFFSETS = (NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Nor at offset deltas; compressed records, which it then writes anew, fail there."""
UNCAUGHT = (ErrorCode.UNKNOWN_SERVER_ERROR, REFUSED)
ENDLESS = b"\xff" * 12
SIX_BYTES = b"\x80\x80\x80\x80\x80\x00"
"""A zero in a varint that is longer than a varint of 32 bits may be."""


class Damage(NamedTuple):
    """One way to be wrong: the records behind the header, what the header says, and the answer."""

    records: bytes
    error: ErrorCode = REFUSED
    count: int = 3  # type: ignore[assignment]  # hides the method of a tuple
    last_delta: int | None = None
    """One less than the count unless it is said."""
    base_timestamp: int = 1_700_000_000_000
    max_timestamp: int | None = None
    """The base timestamp unless it is said."""
    kafka: tuple[ErrorCode, ErrorCode] | None = None
    """What Apache Kafka answers where that is something else: to uncompressed records, and to compressed ones."""

    def batch(self, codec: int = Compression.NONE) -> bytes:
        """The bytes of the batch."""
        payload = self.records if codec == Compression.NONE else compress(codec, self.records)
        last_delta = self.count - 1 if self.last_delta is None else self.last_delta
        max_timestamp = self.base_timestamp if self.max_timestamp is None else self.max_timestamp
        times = (self.base_timestamp, max_timestamp)
        length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
        made = bytearray(HEADER.pack(0, length, -1, 2, 0, codec, last_delta, *times, -1, -1, -1, self.count) + payload)
        write_crc(memoryview(made))
        return bytes(made)


def framed(body: bytes, size: int | None = None) -> bytes:
    """A record with its length in front, or another one."""
    return encode_varint(len(body) if size is None else size) + body


def body(
    delta: int | bytes = 0,
    *,
    stamp: int | bytes = 0,
    key: bytes = encode_varint(3) + b"key",
    value: bytes = encode_varint(5) + b"value",
    headers: bytes = b"\0",
) -> bytes:
    """All of a record behind its length; what is given as bytes stands there as it is."""
    stamp_bytes = stamp if isinstance(stamp, bytes) else encode_varint(stamp)
    delta_bytes = delta if isinstance(delta, bytes) else encode_varint(delta)
    return b"\0" + stamp_bytes + delta_bytes + key + value + headers


FIRST, SECOND, THIRD = (framed(body(delta)) for delta in range(3))
SOUND = FIRST + SECOND + THIRD


def second(data: bytes) -> bytes:
    """Three records, with something else instead of the second."""
    return FIRST + data + THIRD


DAMAGES: dict[str, Damage] = {
    "nothing wrong": Damage(SOUND, NONE),
    "a count of all numbers": Damage(SOUND, count=2**31 - 1),
    "one more counted": Damage(SOUND, count=4),
    "one fewer counted": Damage(SOUND, count=2),
    "none counted": Damage(SOUND, count=0),
    "a negative count": Damage(SOUND, count=-1),
    "a last delta below the count": Damage(SOUND, last_delta=1),
    "a last delta above the count": Damage(SOUND, last_delta=3),
    "a last delta far away": Damage(SOUND, last_delta=2**31 - 1),
    "no records at all": Damage(b""),
    "a byte left over": Damage(SOUND + b"\0"),
    "a record left over": Damage(SOUND + framed(body(3))),
    "the last byte missing": Damage(SOUND[:-1]),
    "a length of -1": Damage(second(framed(body(1), -1))),
    "a length of 0": Damage(second(b"\0")),
    "a length of 2^31-1": Damage(second(framed(body(1), 2**31 - 1))),
    "a length of -2^31": Damage(second(framed(body(1), -(2**31)))),
    "a length short of its record": Damage(second(framed(body(1), len(body(1)) - 1)), kafka=UNCHECKED_LENGTHS),
    "a length of more than its record": Damage(second(framed(body(1) + b"\0"))),
    "a length into the next record": Damage(second(framed(body(1), len(body(1)) + len(THIRD))), count=2),
    "an endless length": Damage(second(ENDLESS), kafka=UNCAUGHT),
    "an endless timestamp": Damage(second(framed(body(1, stamp=ENDLESS)))),
    "an endless offset": Damage(second(framed(body(ENDLESS)))),
    "an endless key length": Damage(second(framed(body(1, key=ENDLESS)))),
    "an endless value length": Damage(second(framed(body(1, value=ENDLESS)))),
    "an endless header count": Damage(second(framed(body(1, headers=ENDLESS)))),
    "a length in six bytes": Damage(second(SIX_BYTES + body(1)), kafka=UNCAUGHT),
    "an offset in six bytes": Damage(framed(body(SIX_BYTES)) + SECOND + THIRD),
    "a key length in six bytes": Damage(second(framed(body(1, key=SIX_BYTES)))),
    "a timestamp in six bytes": Damage(second(framed(body(1, stamp=SIX_BYTES))), NONE),
    "an offset in five bytes": Damage(framed(body(SIX_BYTES[1:])) + SECOND + THIRD, NONE),
    "a key longer than its record": Damage(second(framed(body(1, key=encode_varint(300) + b"key")))),
    "a key into the next record": Damage(second(framed(body(1, key=encode_varint(12) + b"key")))),
    "a key of 2^31-1": Damage(second(framed(body(1, key=encode_varint(2**31 - 1) + b"key")))),
    "a key of -2": Damage(second(framed(body(1, key=encode_varint(-2)))), NONE),
    "a value longer than its record": Damage(second(framed(body(1, value=encode_varint(300) + b"value")))),
    "a value up to the end of its record": Damage(second(framed(body(1, value=encode_varint(6) + b"value")))),
    "a value of -2": Damage(second(framed(body(1, value=encode_varint(-2)))), NONE),
    "-1 headers": Damage(second(framed(body(1, headers=encode_varint(-1))))),
    "a header too many": Damage(second(framed(body(1, headers=b"\x02")))),
    "2^31-1 headers": Damage(second(framed(body(1, headers=encode_varint(2**31 - 1))))),
    "a header": Damage(second(framed(body(1, headers=b"\x02\x02h\x02x"))), NONE),
    "a header without a value": Damage(second(framed(body(1, headers=b"\x02\x02h\x01"))), NONE),
    "a header key of -1": Damage(second(framed(body(1, headers=b"\x02\x01\x02x")))),
    "a header key longer than its record": Damage(second(framed(body(1, headers=b"\x02\x64h\x02x")))),
    "a header value longer than its record": Damage(second(framed(body(1, headers=b"\x02\x02h\x64x")))),
    "a byte behind the headers": Damage(second(framed(body(1, headers=b"\x02\x02h\x02x\0")))),
    "a header value of -2": Damage(second(framed(body(1, headers=b"\x02\x02h\x03"))), NONE),
    "a header key that is no UTF-8": Damage(second(framed(body(1, headers=b"\x02\x02\xff\x02x"))), NONE),
    "an offset left out": Damage(FIRST + framed(body(2)) + framed(body(3)), kafka=UNCHECKED_OFFSETS),
    "an offset twice": Damage(second(FIRST), kafka=UNCHECKED_OFFSETS),
    "offsets that fall": Damage(THIRD + SECOND + FIRST, kafka=UNCHECKED_OFFSETS),
    "a negative offset": Damage(second(framed(body(-1))), kafka=UNCHECKED_OFFSETS),
    "an offset far away": Damage(FIRST + SECOND + framed(body(2_000_000_000)), kafka=UNCHECKED_OFFSETS),
    "an offset far away, and the header says so": Damage(
        FIRST + SECOND + framed(body(2_000_000_000)), last_delta=2_000_000_000
    ),
    "an attribute of a record": Damage(second(framed(b"\x07" + body(1)[1:])), NONE),
    "a largest timestamp too large": Damage(SOUND, NONE, max_timestamp=1_800_000_000_000),
    "a largest timestamp too small": Damage(SOUND, NONE, max_timestamp=5),
    "a timestamp beyond 64 bits": Damage(
        second(framed(body(1, stamp=5))), ErrorCode.INVALID_TIMESTAMP, base_timestamp=2**63 - 3
    ),
}
