"""The files of a partition made readable, in the words of Kafka's DumpLogSegments: the engine of `barnabas dump-log`.

Nothing is opened for writing, and damage is reported where it is found, not raised.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import construct as c

from ..protocol.compression import Compression
from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.record_batch import (
    Batch,
    ControlType,
    Record,
    RecordBatch,
    TimestampType,
    iter_batches,
    parse_control_key,
)
from .file_constructs import (
    OFFSET_INDEX_ENTRY,
    PRODUCER_SNAPSHOT,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    entries,
    plain,
)
from .filesystem import FileSystem

Row: TypeAlias = dict[str, Any]
"""Column name, in Kafka's spelling, to value."""

_TIMESTAMP_NAMES = {
    TimestampType.NO_TIMESTAMP: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(slots=True)
class DumpEntry:
    """One line of a dump: what it describes and its columns, or a problem in plain words."""

    kind: str
    """batch, record, index, timeindex, txnindex, producer, line, or problem."""
    columns: Row = field(default_factory=dict)

    def __str__(self) -> str:
        if self.kind in ("problem", "line"):
            return str(self.columns["text"])
        text = " ".join(f"{name}: {_text(value)}" for name, value in self.columns.items())
        return f"| {text}" if self.kind == "record" else text


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return str(value)


def _problem(text: str, **columns: int) -> DumpEntry:
    return DumpEntry("problem", {"text": text, **columns})


def dump_file(
    fs: FileSystem, path: str, *, deep_iteration: bool = False, print_data: bool = False
) -> Iterator[DumpEntry]:
    """What one file holds, by the kind that its name tells.

    Of a `.log`, a line per batch; with `deep_iteration` one per record below it, and with `print_data` their keys and
    values. Raises `OSError`, and ValueError for a name of no known kind.
    """
    name = path.rpartition("/")[2]
    data = fs.read_bytes(path)
    stem, _, suffix = name.partition(".")
    base_offset = int(stem) if stem.isdigit() else 0
    match suffix.split(".")[0]:
        case "log":
            yield from _dump_log(data, deep_iteration or print_data, print_data)
        case "index":
            yield from _dump_offset_index(data, base_offset)
        case "timeindex":
            yield from _dump_time_index(data, base_offset)
        case "txnindex":
            yield from (DumpEntry("txnindex", _renamed(row)) for row in entries(TRANSACTION_INDEX_ENTRY, data))
        case "snapshot":
            yield from _dump_snapshot(data)
        case _ if name.endswith(("checkpoint", "metadata", "properties", "cleanshutdown")):
            for line in data.decode("utf-8", "backslashreplace").splitlines():
                yield DumpEntry("line", {"text": line})
        case _:
            raise ValueError(f"{name} is no file that a partition or a log directory has")


def _dump_log(data: bytes, deep: bool, print_data: bool) -> Iterator[DumpEntry]:
    position = 0
    try:
        for batch in iter_batches(data):
            yield DumpEntry("batch", _batch_row(batch))
            position = batch.position + batch.size
            if deep:
                yield from _dump_records(batch, print_data)
    except ProtocolError as error:
        yield _problem(f"No batch can begin at position {position}: {error}")
    if position < len(data):
        yield _problem(f"Found {len(data) - position} invalid bytes at the end of the file")


def _batch_row(batch: Batch) -> Row:
    row: Row = {"baseOffset": batch.base_offset, "lastOffset": batch.last_offset}
    if isinstance(batch, RecordBatch):
        row |= {
            "count": batch.header.record_count,
            "baseSequence": batch.base_sequence,
            "lastSequence": batch.last_sequence,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "partitionLeaderEpoch": batch.partition_leader_epoch,
            "isTransactional": batch.is_transactional,
            "isControl": batch.is_control,
            "deleteHorizonMs": batch.delete_horizon_ms,
        }
    return row | {
        "position": batch.position,
        _TIMESTAMP_NAMES[batch.timestamp_type]: batch.max_timestamp,
        "size": batch.size,
        "magic": batch.magic,
        "compresscodec": _codec_name(batch.codec),
        "crc": batch.header.crc if isinstance(batch, RecordBatch) else int.from_bytes(batch.view[12:16], "big"),
        "isvalid": batch.is_valid,
    }


def _codec_name(codec: int) -> str:
    return Compression(codec).name.lower() if codec in set(Compression) else f"unknown({codec})"


def _dump_records(batch: Batch, print_data: bool) -> Iterator[DumpEntry]:
    try:
        for index, record in enumerate(batch.records()):
            yield DumpEntry("record", _record_row(batch, record, index, print_data))
    except (ProtocolError, KafkaError) as error:
        yield _problem(f"The records of the batch at position {batch.position} cannot be read: {error}")


def _record_row(batch: Batch, record: Record, index: int, print_data: bool) -> Row:
    key, value = record.key, record.value
    row: Row = {
        "offset": record.offset,
        _TIMESTAMP_NAMES[batch.timestamp_type]: record.timestamp,
        "keySize": -1 if key is None else len(key),
        "valueSize": -1 if value is None else len(value),
    }
    if batch.magic == 2:
        sequence = batch.base_sequence + index if batch.base_sequence >= 0 else -1
        row |= {"sequence": sequence, "headerKeys": [name for name, _ in record.headers]}
    if batch.is_control:
        row["endTxnMarker"] = _control_name(parse_control_key(key))
    elif print_data:
        row |= {"key": key, "payload": value}
    return row


def _control_name(control_type: int | None) -> str:
    return ControlType(control_type).name if control_type in set(ControlType) else f"unknown({control_type})"


def _renamed(row: dict[str, int]) -> Row:
    """Python's names of construct's fields in Kafka's spelling."""
    return {name.split("_")[0] + "".join(part.title() for part in name.split("_")[1:]): row[name] for name in row}


def _dump_offset_index(data: bytes, base_offset: int) -> Iterator[DumpEntry]:
    for at, row in enumerate(entries(OFFSET_INDEX_ENTRY, data)):
        if at and not row["relative_offset"]:
            return  # zeros of a preallocated file
        yield DumpEntry("index", {"offset": base_offset + row["relative_offset"], "position": row["position"]})


def _dump_time_index(data: bytes, base_offset: int) -> Iterator[DumpEntry]:
    for at, row in enumerate(entries(TIME_INDEX_ENTRY, data)):
        if at and not row["timestamp"]:
            return
        yield DumpEntry("timeindex", {"timestamp": row["timestamp"], "offset": base_offset + row["relative_offset"]})


def _dump_snapshot(data: bytes) -> Iterator[DumpEntry]:
    try:
        snapshot = PRODUCER_SNAPSHOT.parse(data)
    except c.ConstructError as error:
        yield _problem(f"This is no producer snapshot: {error}")
        return
    for producer in snapshot.producers:
        yield DumpEntry("producer", _renamed(plain(producer)))


def verify_indexes(fs: FileSystem, log_path: str) -> Iterator[DumpEntry]:
    """What in the offset and time index of a segment contradicts its log; nothing if they agree.

    An offset index entry must name the last offset of the batch that starts at its position; timestamps must be those
    of a batch, strictly rising. Raises `OSError`.
    """
    stem = log_path.removesuffix(".log")
    batches = list(iter_batches(fs.read_bytes(log_path)))
    by_position = {batch.position: batch for batch in batches}
    by_last_offset = {batch.last_offset: batch for batch in batches}
    last_offset, last_timestamp = -1, -1
    for entry in _index_entries(fs, f"{stem}.index"):
        offset, position = entry.columns["offset"], entry.columns["position"]
        batch = by_position.get(position)
        if batch is None or batch.last_offset != offset:
            found = batch.last_offset if batch else None
            yield _problem(f"index offset: {offset}, log offset: {found}", offset=offset, position=position)
        if offset <= last_offset:
            yield _problem(f"index offset {offset} does not rise", offset=offset, position=position)
        last_offset = offset
    for entry in _index_entries(fs, f"{stem}.timeindex"):
        timestamp, offset = entry.columns["timestamp"], entry.columns["offset"]
        batch = by_last_offset.get(offset)
        if timestamp >= 0 and (batch is None or batch.max_timestamp != timestamp):
            text = f"index timestamp: {timestamp} at offset {offset}, log: {batch and batch.max_timestamp}"
            yield _problem(text, offset=offset, timestamp=timestamp)
        if timestamp <= last_timestamp and timestamp >= 0:
            yield _problem(f"index timestamp {timestamp} does not rise", timestamp=timestamp)
        last_timestamp = timestamp


def _index_entries(fs: FileSystem, path: str) -> list[DumpEntry]:
    return list(dump_file(fs, path)) if fs.exists(path) else []
