"""The batches of a snapshot of the metadata, made from single records (Kafka: RecordsSnapshotWriter)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...protocol.metadata_records import encode_control_record
from ...protocol.record_batch import RecordBatchBuilder

BATCH_BYTES = 1 << 20
"""Kafka's batches have up to 8 MB; smaller ones take less time on the event loop."""


class SnapshotBatches:
    """Builds batches whose offsets begin at 0 and follow each other. It is used for one snapshot."""

    def __init__(self, epoch: int, timestamp: int) -> None:
        """All records have the leader epoch of the snapshot, and the time of its last record in ms."""
        self._epoch = epoch
        self._timestamp = timestamp
        self._next_offset = 0
        self._builder = self._new_builder()

    def append(self, value: bytes) -> bytes | None:
        """Add the value of a metadata record; return a batch that is full, without this record."""
        if self._builder.append(None, value, timestamp=self._timestamp):
            return None
        full = self.rest()
        self._builder.append(None, value, timestamp=self._timestamp)
        return full

    def rest(self) -> bytes | None:
        """Return the batch of the records since the last one; None without records."""
        builder = self._builder
        if not len(builder):
            return None
        self._next_offset += len(builder)
        self._builder = self._new_builder()
        return bytes(builder.build())

    def control_batch(self, records: Sequence[Any]) -> bytes:
        """Return a batch of control records. All other records must have been returned before."""
        assert not len(self._builder), "records of the metadata are in front of the control records"
        builder = self._new_builder(is_control=True)
        for record in records:
            key, value = encode_control_record(record)
            builder.append(key, value, timestamp=self._timestamp)
        self._next_offset += len(records)
        self._builder = self._new_builder()
        return bytes(builder.build())

    def _new_builder(self, *, is_control: bool = False) -> RecordBatchBuilder:
        return RecordBatchBuilder(
            max_size=BATCH_BYTES,
            base_offset=self._next_offset,
            partition_leader_epoch=self._epoch,
            is_control=is_control,
        )
