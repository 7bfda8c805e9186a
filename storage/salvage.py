"""Finds the batches in the bytes of a `.log` file, however damaged they are, and describes them with `construct`."""

import re
import zlib
from collections.abc import Iterator
from struct import error as struct_error
from typing import Any, NamedTuple, TypeAlias

import construct as c

from ..protocol.batch_header import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE
from ..protocol.checksum import crc32c
from ..protocol.compression import Compression, decompress
from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.legacy_records import MESSAGE_V0
from ..protocol.record import (
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MIN_ENTRY_HEADER_SIZE,
    Record,
    TimestampType,
    entry_size,
    max_plain_size,
)
from ..protocol.record_constructs import MESSAGES, RECORD_BATCH, parse_messages, parse_records

_MAYBE_AN_ENTRY = re.compile(
    # An offset below 2^56, a length of 14 at least, four bytes of anything, and magic and attributes that there are.
    rb"(?=\x00.{7}(?:[\x01-\x7f]...|\x00[^\x00]..|\x00\x00[^\x00].|\x00\x00\x00[\x0e-\xff]).{4}"
    rb"(?:\x02.{4}\x00|[\x00\x01][\x00-\x0f]))",
    re.DOTALL,
)


class FoundBatch(NamedTuple):
    """A batch, or the existing part of a truncated batch."""

    position: int
    size: int
    """The size in bytes, from the length field; a truncated batch has fewer bytes."""
    magic: int
    fields: Any
    """The result of parsing with `RECORD_BATCH` or one of `MESSAGES`."""
    crc_matches: bool

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP
        return TimestampType(int(self.fields.attributes.is_log_append_time))

    @property
    def base_offset(self) -> int:
        """The offset of the first record; of a compressed message that cannot be read, the message's own."""
        if self.magic == 2:
            return int(self.fields.base_offset)
        try:
            return next(self.records()).offset
        except (ProtocolError, KafkaError, c.ConstructError, StopIteration):
            return self.last_offset

    @property
    def last_offset(self) -> int:
        if self.magic < 2:
            return int(self.fields.offset)
        return int(self.fields.base_offset + self.fields.last_offset_delta)

    @property
    def max_timestamp(self) -> int:
        if self.magic == 2:
            return int(self.fields.max_timestamp)
        return int(self.fields.timestamp) if self.magic else -1

    def records(self) -> Iterator[Record]:
        """Return the records one after another.

        Raises ProtocolError, KafkaError or construct.ConstructError where they cannot be read any further.
        """
        return self._records_of_batch() if self.magic == 2 else self._records_of_message()

    def _plain(self, data: bytes) -> bytes:
        codec = self.fields.attributes.codec
        if codec == Compression.NONE:
            return data
        return decompress(codec, data, max_size=max_plain_size(HEADER_SIZE + len(data)), magic=self.magic)

    def _records_of_batch(self) -> Iterator[Record]:
        batch = self.fields
        for record in parse_records(self._plain(batch.records), batch.record_count):
            offset = batch.base_offset + record.offset_delta
            timestamp = batch.base_timestamp + record.timestamp_delta
            if batch.attributes.is_log_append_time:
                timestamp = batch.max_timestamp
            headers = [(_text(header.key.data), header.value.data) for header in record.headers]
            yield Record(offset, timestamp, record.key.data, record.value.data, headers)

    def _records_of_message(self) -> Iterator[Record]:
        message = self.fields
        if message.attributes.codec == Compression.NONE:
            yield Record(message.offset, self.max_timestamp, message.key.data, message.value.data)
            return
        inner = list(parse_messages(self._plain(message.value.data or b"")))
        # Offsets inside a v1 wrapper count up to the wrapper's own, unless librdkafka left that one at 0 (KIP-31).
        shift = message.offset - inner[-1].offset if inner and self.magic and message.offset else 0
        for one in inner:
            timestamp = -1 if not self.magic else one.timestamp
            if message.attributes.is_log_append_time:
                timestamp = self.max_timestamp
            yield Record(one.offset + shift, timestamp, one.key.data, one.value.data)


def _text(name: bytes | None) -> str:
    return "" if name is None else name.decode("utf-8", "backslashreplace")


class Damage(NamedTuple):
    """Bytes from `position` to `end` that are not a valid batch."""

    position: int
    end: int
    reason: str
    beginning: FoundBatch | None
    """The existing part of the batch of format v2 that begins here."""


Found: TypeAlias = FoundBatch | Damage


def find_batches(data: bytes) -> Iterator[Found]:
    """Everything in the file in order: each byte belongs to a batch or to some damage.

    A batch whose checksum is wrong counts as a batch if another one follows it, or if the file ends with it. After any
    other damage the search continues at the next batch whose checksum is right.
    """
    position = 0
    while position < len(data):
        found = _batch_at(data, position)
        if isinstance(found, FoundBatch) and (found.crc_matches or _may_follow(data, position + found.size)):
            yield found
            position += found.size
            continue
        end = _next_sound(data, position + 1)
        reason = found if isinstance(found, str) else "the checksum of the batch is wrong and no batch follows it"
        yield Damage(position, end, reason, _beginning(data[position:end], position))
        position = end


def _batch_at(data: bytes, position: int) -> FoundBatch | str:
    """Return the whole batch that begins here, or the reason why there is none."""
    left = len(data) - position
    if left < MIN_ENTRY_HEADER_SIZE:
        return f"{left} bytes are too few for a batch"
    try:
        size = entry_size(data, position)
        if size > left:
            return f"a batch of {size} bytes is cut off after {left}"
        return _described(data[position : position + size], position, size)
    except ProtocolError as error:
        return str(error)
    except c.ConstructError as error:
        return f"malformed: {str(error).splitlines()[-1]}"


def _described(batch: bytes, position: int, size: int) -> FoundBatch:
    magic = batch[MAGIC_POSITION]
    fields = (*MESSAGES, RECORD_BATCH)[magic].parse(batch)
    return FoundBatch(position, size, magic, fields, _crc_of(memoryview(batch)) == fields.crc)


def _crc_of(batch: memoryview) -> int:
    return crc32c(batch[ATTRIBUTES_POSITION:]) if batch[MAGIC_POSITION] == 2 else zlib.crc32(batch[MAGIC_POSITION:])


def _may_follow(data: bytes, position: int) -> bool:
    """Whether a batch may begin here, or the file ends."""
    return position == len(data) or isinstance(_batch_at(data, position), FoundBatch)


def _next_sound(data: bytes, position: int) -> int:
    """Return the position of the next batch with a right checksum; the end of the file if there is none."""
    view = memoryview(data)
    for match in _MAYBE_AN_ENTRY.finditer(data, position):
        start = match.start()
        try:
            batch = view[start : start + entry_size(data, start)]
        except (ProtocolError, struct_error):
            continue
        crc_position = CRC_POSITION if batch[MAGIC_POSITION] == 2 else MESSAGE_V0.at("crc")
        stated = batch[crc_position : crc_position + 4]
        if _crc_of(batch).to_bytes(4, "big") == stated and isinstance(_batch_at(data, start), FoundBatch):
            return start
    return len(data)


def _beginning(damaged: bytes, position: int) -> FoundBatch | None:
    """Return the batch that damaged bytes begin with, if its header is complete and plausible."""
    if len(damaged) < HEADER_SIZE or damaged[MAGIC_POSITION] != 2:
        return None
    found = _described(damaged, position, 0)
    return found._replace(size=found.fields.length + LOG_OVERHEAD)
