"""A folder `__cluster_metadata-0` as Kafka writes it, from records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from barnabas.protocol.metadata_records import (
    NUMBERS,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control_record,
    encode_metadata_record,
)
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.server.controller.kraft_adoption import METADATA_FOLDER

T = TypeVar("T")


def batch(base_offset: int, *records: Any) -> bytes:
    """A batch of records or of control records, or of values."""
    is_control = type(records[0]) not in NUMBERS and not isinstance(records[0], bytes)
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=1, is_control=is_control)
    for record in records:
        if is_control:
            builder.append(*encode_control_record(record), timestamp=5)
        else:
            value = record if isinstance(record, bytes) else encode_metadata_record(record)
            builder.append(None, value, timestamp=5)
    return builder.build()


class MetadataFolder:
    """The folder in a log directory."""

    def __init__(self, log_dir: Path) -> None:
        self.path = log_dir / METADATA_FOLDER
        self.path.mkdir(parents=True)

    def log(self, base_offset: int = 0) -> Path:
        """A segment."""
        return self.path / f"{base_offset:020d}.log"

    def snapshot(self, end_offset: int, *records: Any) -> Path:
        """Write a complete snapshot."""
        path = self.path / f"{end_offset:020d}-{1:010d}.checkpoint"
        parts = [batch(0, SnapshotHeaderRecord(last_contained_log_timestamp=5)), batch(1, *records)]
        path.write_bytes(b"".join(parts) + batch(1 + len(records), SnapshotFooterRecord()))
        path.chmod(0o400)
        return path


class ImmediateWork:
    """Lanes that run each job in the loop's thread."""

    async def run(self, lane: str, job: Callable[[], T]) -> T:
        return job()
