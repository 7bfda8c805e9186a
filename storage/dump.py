"""Prints the files of a partition in the format of Kafka's DumpLogSegments: the engine of `barnabas dump-log`.

No file is opened for writing. Damage is reported at its position and not raised, and the data after it is read too.
All binary data is read by its `construct` description.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import construct as c

from ..protocol.compression import Compression
from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.file_layouts import decode_snapshot
from ..protocol.message_json import message_json
from ..protocol.metadata_records import decode_control_record, metadata_record_json
from ..protocol.record import Record, TimestampType
from ..protocol.record_batch_builder import ControlType, parse_control_key
from ..protocol.record_constructs import OFFSET_INDEX, PRODUCER_SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from .filesystem import FileSystem
from .salvage import Damage, FoundBatch, find_batches

Row: TypeAlias = dict[str, Any]
"""Column name, in Kafka's spelling, to value."""

_TIMESTAMP_NAMES = {
    TimestampType.NO_TIMESTAMP: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


_QUORUM_RECORDS: dict[int | None, str] = {
    ControlType.LEADER_CHANGE: "LeaderChange",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}
"""Control records of a quorum by their type, with Kafka's names."""


@dataclass(slots=True)
class DumpEntry:
    """One line of a dump: a kind with its columns, or a problem as a sentence."""

    kind: str
    """batch, record, index, timeindex, txnindex, producer, line, or problem."""
    columns: Row = field(default_factory=dict)

    def __str__(self) -> str:
        if self.kind in ("problem", "line"):
            return str(self.columns["text"])
        text = " ".join(f"{name}: {_text(value)}" for name, value in self.columns.items())
        return f"| {text}" if self.kind == "record" else text


def _text(value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
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
    fs: FileSystem,
    path: str,
    *,
    deep_iteration: bool = False,
    print_data: bool = False,
    decode_metadata: bool = False,
) -> Iterator[DumpEntry]:
    """Describe the content of one file, whose name determines its kind.

    A `.log` yields a line per batch, also after damaged parts; with `deep_iteration` a line per record follows each
    batch, and with `print_data` their keys and values. A `.checkpoint` is a snapshot of the metadata of a KRaft cluster
    and has batches, too. `decode_metadata` prints the values as records of the metadata, instead of the data. Raises
    `OSError`, and ValueError for a name of no known kind.
    """
    name = path.rpartition("/")[2]
    data = fs.read_bytes(path)
    stem, _, suffix = name.partition(".")
    base_offset = int(stem) if stem.isdigit() else 0
    match suffix.split(".")[0]:
        case "log" | "checkpoint":
            deep = deep_iteration or print_data or decode_metadata
            yield from _dump_log(data, deep, print_data, decode_metadata)
        case "index":
            yield from _dump_offset_index(data, base_offset)
        case "timeindex":
            yield from _dump_time_index(data, base_offset)
        case "txnindex":
            yield from (DumpEntry("txnindex", _renamed(row)) for row in TRANSACTION_INDEX.parse(data))
        case "snapshot":
            yield from _dump_snapshot(data)
        case _ if name.endswith(("checkpoint", "metadata", "properties", "cleanshutdown")):
            for line in data.decode("utf-8", "backslashreplace").splitlines():
                yield DumpEntry("line", {"text": line})
        case _:
            raise ValueError(f"{name}: not the name of a file of a partition or a log directory")


def _dump_log(data: bytes, deep: bool, print_data: bool, decode_metadata: bool) -> Iterator[DumpEntry]:
    for found in find_batches(data):
        if isinstance(found, Damage):
            yield _damage_in(found, data)
            batch = found.beginning
        else:
            yield DumpEntry("batch", _batch_row(found))
            batch = found
        if deep and batch is not None:
            yield from _dump_records(batch, print_data, decode_metadata)


def _damage_in(damage: Damage, data: bytes) -> DumpEntry:
    size = damage.end - damage.position
    text = f"Found {size} invalid bytes at position {damage.position}"
    if damage.end < len(data):
        text += ", followed by further batches"
    elif not any(data[damage.position :]):
        return _problem(f"Found {size} zeros at the end of the file: not written, or lost in a crash", size=size)
    else:
        text += ", the end of the file"
    text += f": {damage.reason}"
    if damage.beginning is not None:
        text += f"; its header reads {DumpEntry('batch', _batch_row(damage.beginning))}"
    return _problem(text, position=damage.position, size=size)


def _batch_row(batch: FoundBatch) -> Row:
    row: Row = {"baseOffset": batch.base_offset, "lastOffset": batch.last_offset}
    fields, attributes = batch.fields, batch.fields.attributes
    if batch.magic == 2:
        row |= {
            "count": fields.record_count,
            "baseSequence": fields.base_sequence,
            "lastSequence": _sequence(fields, fields.last_offset_delta),
            "producerId": fields.producer_id,
            "producerEpoch": fields.producer_epoch,
            "partitionLeaderEpoch": fields.partition_leader_epoch,
            "isTransactional": attributes.is_transactional,
            "isControl": attributes.is_control,
            "deleteHorizonMs": fields.base_timestamp if attributes.has_delete_horizon else None,
        }
    return row | {
        "position": batch.position,
        _TIMESTAMP_NAMES[batch.timestamp_type]: batch.max_timestamp,
        "size": batch.size,
        "magic": batch.magic,
        "compresscodec": _codec_name(attributes.codec),
        "crc": fields.crc,
        "isvalid": batch.crc_matches,
    }


def _sequence(fields: Any, offset_delta: int) -> int:
    """Sequences go from 2147483647 on to 0; -1 is none."""
    return fields.base_sequence + offset_delta & 0x7FFFFFFF if fields.base_sequence >= 0 else -1


def _codec_name(codec: int) -> str:
    return Compression(codec).name.lower() if codec in set(Compression) else f"unknown({codec})"


def _dump_records(batch: FoundBatch, print_data: bool, decode_metadata: bool) -> Iterator[DumpEntry]:
    count = 0
    try:
        for record in batch.records():
            yield DumpEntry("record", _record_row(batch, record, print_data, decode_metadata))
            count += 1
    except (ProtocolError, KafkaError, c.ConstructError) as error:
        what = str(error).splitlines()[-1]
        text = f"Of the batch at position {batch.position} no more than {count} records can be read: {what}"
        yield _problem(text, position=batch.position, records=count)


def _record_row(batch: FoundBatch, record: Record, print_data: bool, decode_metadata: bool) -> Row:
    key, value = record.key, record.value
    row: Row = {
        "offset": record.offset,
        _TIMESTAMP_NAMES[batch.timestamp_type]: record.timestamp,
        "keySize": -1 if key is None else len(key),
        "valueSize": -1 if value is None else len(value),
    }
    if batch.magic == 2:
        sequence = _sequence(batch.fields, record.offset - batch.base_offset)
        row |= {"sequence": sequence, "headerKeys": [name for name, _ in record.headers]}
    if batch.magic == 2 and batch.fields.attributes.is_control:
        control_type = parse_control_key(key)
        name = _QUORUM_RECORDS.get(control_type)
        if name is None:
            row["endTxnMarker"] = _control_name(control_type)
        else:
            control = decode_control_record(key, value)
            row[name] = message_json(control, control.version)
    elif decode_metadata:
        row["payload"] = metadata_record_json(value or b"")
    elif print_data:
        row |= {"key": key, "payload": value}
    return row


def _control_name(control_type: int | None) -> str:
    return ControlType(control_type).name if control_type in set(ControlType) else f"unknown({control_type})"


def _renamed(row: Any) -> Row:
    """Return the parsed row in Kafka's spelling, without construct's internal fields."""
    names = [name for name in row if not name.startswith("_")]
    return {name.split("_")[0] + "".join(part.title() for part in name.split("_")[1:]): row[name] for name in names}


def _dump_offset_index(data: bytes, base_offset: int) -> Iterator[DumpEntry]:
    for at, row in enumerate(OFFSET_INDEX.parse(data)):
        if at and not row.relative_offset:
            return  # zeros of a preallocated file
        yield DumpEntry("index", {"offset": base_offset + row.relative_offset, "position": row.position})


def _dump_time_index(data: bytes, base_offset: int) -> Iterator[DumpEntry]:
    for at, row in enumerate(TIME_INDEX.parse(data)):
        if at and not row.timestamp:
            return
        yield DumpEntry("timeindex", {"timestamp": row.timestamp, "offset": base_offset + row.relative_offset})


def _dump_snapshot(data: bytes) -> Iterator[DumpEntry]:
    """Yield the entries of a producer snapshot, and the reason why a broker would not load them."""
    try:
        decode_snapshot(data)
    except ProtocolError as error:
        yield _problem(f"This is not a valid producer snapshot: {error}")
    try:
        entries = PRODUCER_SNAPSHOT.parse(data).entries
    except c.ConstructError:
        return  # not even its header is there
    for entry in entries:
        yield DumpEntry("producer", _renamed(entry))


def verify_indexes(fs: FileSystem, log_path: str) -> Iterator[DumpEntry]:
    """Yield the contradictions between a segment's log and its offset and time index.

    An offset index entry must name the last offset of the batch that starts at its position; each timestamp must be
    the timestamp of a batch, and timestamps must increase. Raises `OSError`.
    """
    stem = log_path.removesuffix(".log")
    data = fs.read_bytes(log_path)
    found = list(find_batches(data))
    yield from (_damage_in(one, data) for one in found if isinstance(one, Damage))
    batches = [one for one in found if isinstance(one, FoundBatch)]
    by_position = {batch.position: batch for batch in batches}
    by_last_offset = {batch.last_offset: batch for batch in batches}
    last_offset, last_timestamp = -1, -1
    for entry in _index_entries(fs, f"{stem}.index"):
        offset, position = entry.columns["offset"], entry.columns["position"]
        batch = by_position.get(position)
        if batch is None or batch.last_offset != offset:
            there = batch.last_offset if batch else None
            yield _problem(f"index offset: {offset}, log offset: {there}", offset=offset, position=position)
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
