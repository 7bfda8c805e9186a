"""The file with which a new controller of Apache Kafka begins: `kafka-storage format` writes it.

The first active controller appends its records to the empty metadata log. Since Kafka 4.4 it is the snapshot at
offset 0 and epoch 0, before that `bootstrap.checkpoint` in the log directory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...protocol.errors import KafkaError, ProtocolError
from ...protocol.metadata_records import (
    FeatureLevelRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from ...protocol.record_batch import RecordBatch, iter_batches
from ...storage.metadata_snapshot import OffsetAndEpoch, snapshot_file_name
from ..image.features_image import METADATA_VERSION
from ..image.metadata_delta import MetadataDelta
from ..image.metadata_error import MetadataError
from ..image.metadata_image import EMPTY_IMAGE
from ..image.metadata_provenance import MetadataProvenance
from ..raft.kafka_raft_log import METADATA_DIRECTORY, control_records_of, values_of
from ..raft.snapshot_batches import SnapshotBatches

if TYPE_CHECKING:
    from ...storage.filesystem import FileSystem

BEFORE_4_4 = "bootstrap.checkpoint"
OLDEST_METADATA_VERSION = 22
"""4.0-IV0, the oldest level of a cluster that Kafka 4.0 has formatted."""


class BootstrapCheckpointError(Exception):
    """The directory is not that of a new controller. The message contains the directory."""


class BootstrapCheckpoint:
    """The bootstrap records of one controller that was never started. Blocking; used by the command line."""

    def __init__(self, fs: FileSystem, log_dir: str) -> None:
        """Read the file. Raises BootstrapCheckpointError, OSError."""
        self._fs = fs
        folder = f"{log_dir}/{METADATA_DIRECTORY}"
        names = fs.list_dir(folder) if fs.is_dir(folder) else []
        if any(name.endswith(".log") and fs.size(f"{folder}/{name}") for name in names):
            raise BootstrapCheckpointError(f"{log_dir}: the controller was started. Format a new directory")
        path = f"{log_dir}/{BEFORE_4_4}"
        newer = snapshot_file_name(OffsetAndEpoch(0, 0))
        if not fs.exists(path):
            if newer not in names:
                raise BootstrapCheckpointError(f"{log_dir}: not formatted. Run kafka-storage format")
            path = f"{folder}/{newer}"
        self.path = path
        self._control: list[Any] = []
        self.records: list[Any] = []
        """The metadata records."""
        try:
            for batch in iter_batches(fs.read_bytes(path)):
                if not isinstance(batch, RecordBatch) or not batch.is_valid:
                    raise ProtocolError(f"the batch at position {batch.position} is damaged")
                self._control += control_records_of(batch)
                self.records += map(decode_metadata_record, values_of(batch))
        except (KafkaError, ProtocolError) as error:
            raise BootstrapCheckpointError(f"{path}: {error}") from error
        level = max((one.feature_level for one in self.records if _is_metadata_version(one)), default=0)
        if level < OLDEST_METADATA_VERSION:
            raise BootstrapCheckpointError(
                f"{path}: metadata.version {level}. Format the controllers with a release from 4.0 on"
            )

    async def add(self, records: Iterable[Any]) -> None:
        """Add records to the file, durably. Raises BootstrapCheckpointError for records that contradict each other."""
        delta = MetadataDelta(EMPTY_IMAGE)
        try:
            for record in (*self.records, *records):
                delta.replay(record)
        except MetadataError as error:
            raise BootstrapCheckpointError(f"{self.path}: {error}") from error
        # The metadata.version determines the versions of all records.
        image = await delta.apply(MetadataProvenance(-1, 0, 0))
        first = [one for one in self._control if not isinstance(one, SnapshotFooterRecord)]
        headers = [one for one in first if isinstance(one, SnapshotHeaderRecord)]
        batches = SnapshotBatches(0, headers[0].last_contained_log_timestamp if headers else 0)
        data = bytearray(batches.control_batch(first)) if first else bytearray()
        for record, version in image.write():
            if (batch := batches.append(encode_metadata_record(record, version))) is not None:
                data += batch
        data += batches.rest() or b""
        footers = [one for one in self._control if isinstance(one, SnapshotFooterRecord)]
        data += batches.control_batch(footers) if footers else b""
        self._fs.write_atomic(self.path, bytes(data))


def _is_metadata_version(record: Any) -> bool:
    return isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION
