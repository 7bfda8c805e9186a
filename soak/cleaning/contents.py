"""The batches of a partition directory as rows, to compare the files of Barnabas and of Apache Kafka."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import Batch, RecordBatch, iter_batches
from barnabas.storage.filesystem import FileSystem, OsFileSystem

Headers = tuple[tuple[str, bytes | None], ...]


class RecordRow(NamedTuple):
    """One record; `timestamp` is None in format v0, which has no timestamps."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers


class BatchRow(NamedTuple):
    """One batch without its size and checksum, which depend on the implementation of the codec.

    In formats v0 and v1 a row is one message, or one wrapper message with its inner messages. Its base offset is the
    offset of its first record.
    """

    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    leader_epoch: int
    producer: tuple[int, int, int]
    """Producer id, producer epoch, base sequence."""
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    max_timestamp: int
    records: tuple[RecordRow, ...]


def batch_row(batch: Batch) -> BatchRow:
    """Return the row of a batch. Raises AssertionError if the checksum of the batch is wrong."""
    assert batch.is_valid, f"wrong checksum in the batch at {batch.base_offset}"
    records = tuple(record_row(record, batch.magic) for record in batch.records())
    if isinstance(batch, RecordBatch):
        return BatchRow(
            batch.base_offset,
            batch.last_offset,
            2,
            batch.attributes,
            batch.partition_leader_epoch,
            (batch.producer_id, batch.producer_epoch, batch.base_sequence),
            batch.is_transactional,
            batch.is_control,
            batch.delete_horizon_ms,
            batch.max_timestamp,
            records,
        )
    stamp = batch.max_timestamp if batch.magic else -1
    first = records[0].offset if records else batch.last_offset
    none = (-1, -1, -1)
    return BatchRow(
        first, batch.last_offset, batch.magic, batch.attributes, -1, none, False, False, None, stamp, records
    )


def record_row(record: Record, magic: int) -> RecordRow:
    """Return the row of a record."""
    key = None if record.key is None else bytes(record.key)
    value = None if record.value is None else bytes(record.value)
    headers = tuple((name, None if text is None else bytes(text)) for name, text in record.headers)
    return RecordRow(record.offset, key, value, record.timestamp if magic else None, headers)


def segments_of(folder: str, fs: FileSystem | None = None) -> dict[int, list[BatchRow]]:
    """Return all batches of the partition in `folder`, by the base offset of their segment, in order."""
    files = fs or OsFileSystem()
    found = {}
    for name in sorted(files.list_dir(folder)):
        if name.endswith(".log"):
            data = files.read_bytes(f"{folder}/{name}")
            batches = list(iter_batches(data))
            assert sum(batch.size for batch in batches) == len(data), f"{name} has bytes after its last batch"
            found[int(name[:20])] = [batch_row(batch) for batch in batches]
    return found


def batches_of(folder: str, fs: FileSystem | None = None) -> list[BatchRow]:
    """Return all batches of the partition in `folder`, in order."""
    return [row for rows in segments_of(folder, fs).values() for row in rows]


def data_records(rows: Iterable[BatchRow]) -> list[RecordRow]:
    """Return the records for applications, which are all records except control records."""
    return [record for row in rows if not row.is_control for record in row.records]


def tombstones(rows: Iterable[BatchRow]) -> set[int]:
    """Return the offsets of the records without a value."""
    return {record.offset for record in data_records(rows) if record.value is None}


def markers(rows: Iterable[BatchRow]) -> set[tuple[int, tuple[int, int, int]]]:
    """Return the offset and producer of each transaction marker that still has its record."""
    return {(row.base_offset, row.producer) for row in rows if row.is_control and row.records}


def latest(records: Iterable[RecordRow]) -> dict[bytes | None, bytes]:
    """Return the final map of a consumer of these records; a null value removes the key."""
    found: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found


def difference(ours: Iterable[BatchRow], theirs: Iterable[BatchRow]) -> Mapping[str, list[BatchRow]]:
    """Return the batches that only one of two logs has; both lists are empty if the logs are equal."""
    mine, others = list(ours), list(theirs)
    return {
        "only ours": [row for row in mine if row not in others],
        "only theirs": [row for row in others if row not in mine],
    }
