"""Columns of records of which only the keys count."""

from barnabas.protocol.record_columns import RecordColumns


def add_key(records: RecordColumns, offset: int, start: int, size: int) -> None:
    """Append a record whose key is at `start` of the buffer; a size of -1 stands for none."""
    records.make_room(1)
    row = records.count
    records.offsets[row], records.key_starts[row], records.key_sizes[row] = offset, start, size
    records.count = row + 1
