"""Reading of `__cluster_metadata-0`, the metadata log of a KRaft quorum, in a folder that Apache Kafka has left.

Files: `<end offset>-<epoch>.checkpoint` is a snapshot of the metadata below an offset, `<base offset>.log` a segment of
the log. Nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...common.error_description import describe_error
from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError, ProtocolError
from ...protocol.metadata_records import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_control_record,
    decode_metadata_record,
)
from ...protocol.record import Record
from ...protocol.record_batch import RecordBatch, iter_batches
from ..image.metadata_batch_loader import RECORDS_PER_TURN, CommittedBatch, Manifest, MetadataBatchLoader
from ..image.metadata_delta import MetadataDelta
from ..image.metadata_error import MetadataError
from ..image.metadata_image import EMPTY_IMAGE, MetadataImage
from ..image.metadata_provenance import MetadataProvenance
from ..runtime.loop_sharing import CountBudget

if TYPE_CHECKING:
    from ...storage.filesystem import FileSystem
    from ..runtime.ports import Work

logger = room_logger("controller")

READ_BYTES = 1 << 20
MAX_BATCH_BYTES = 64 << 20
"""Kafka's controllers write batches of at most 8 MB."""
_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint", re.ASCII)
_SEGMENT = re.compile(r"(\d{20})\.log", re.ASCII)
_DAMAGE = (OSError, ProtocolError, KafkaError, MetadataError)


class _File(NamedTuple):
    """A snapshot by its end offset, or a segment by its base offset."""

    offset: int
    name: str


class _DamagedLogError(Exception):
    """The batch at an offset of the log cannot be read or applied."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class KraftMetadataLog:
    """The snapshots and the log in one folder. Blocking reads run on a lane, records are applied on the loop."""

    def __init__(self, fs: FileSystem, work: Work, folder: str) -> None:
        self.folder = folder
        self._fs = fs
        self._work = work

    async def read_image(self) -> MetadataImage:
        """Return the metadata after the newest snapshot and the log that follows it. Raises OSError for the folder.

        A log with a damaged part is read up to the last whole batch before it, an older snapshot replaces a damaged
        one, and warnings name both. A metadata transaction without an end has no effect.
        """
        names = await self._work.run(self.folder, partial(self._fs.list_dir, self.folder))
        snapshots, segments = _files(_SNAPSHOT, names), _files(_SEGMENT, names)
        image = EMPTY_IMAGE
        for snapshot in reversed(snapshots):
            try:
                image = await self._load_snapshot(snapshot)
                break
            except _DAMAGE as error:
                logger.warning("the snapshot %s/%s is damaged: %s", self.folder, snapshot.name, describe_error(error))
        try:
            return await self._load_log(image, segments, None)
        except _DamagedLogError as error:
            logger.warning(
                "the metadata log in %s is damaged at offset %d, later changes are lost: %s",
                self.folder,
                error.offset,
                error,
            )
            # The batches before the damage are applied again: the records of the damaged batch may be applied in part.
            return await self._load_log(image, segments, error.offset)

    async def _load_snapshot(self, file: _File) -> MetadataImage:
        delta, budget = MetadataDelta(EMPTY_IMAGE), CountBudget(RECORDS_PER_TURN)
        header: SnapshotHeaderRecord | None = None
        is_complete = False
        epoch = -1
        async for batch in self._batches(file):
            epoch = batch.partition_leader_epoch
            for record in _records(batch):
                if batch.is_control:
                    control = decode_control_record(record.key, record.value)
                    header = control if isinstance(control, SnapshotHeaderRecord) else header
                    is_complete = isinstance(control, SnapshotFooterRecord)
                else:
                    delta.replay(decode_metadata_record(_value(record)))
                await budget.step()
        if header is None or not is_complete:
            raise ProtocolError("the snapshot is not complete")
        return await delta.apply(MetadataProvenance(file.offset - 1, epoch, header.last_contained_log_timestamp))

    async def _load_log(self, image: MetadataImage, segments: Sequence[_File], end_offset: int | None) -> MetadataImage:
        """Return the image after the log, or after its batches below `end_offset`. Raises _DamagedLogError."""
        loader = MetadataBatchLoader(_publish_nothing)
        loader.reset_to_image(image)
        begin = offset = image.provenance.last_contained_offset + 1
        # The segment in which the snapshot ends begins before that offset.
        first = max((number for number, file in enumerate(segments) if file.offset <= offset), default=0)
        if offset == end_offset:
            return image
        for file in segments[first:]:
            try:
                async for batch in self._batches(file):
                    if batch.last_offset < offset:
                        continue
                    if batch.base_offset > offset:
                        raise ProtocolError(f"the records up to offset {batch.base_offset} are missing")
                    await loader.load_batch(_committed(batch, offset))
                    offset = batch.last_offset + 1
                    if offset == end_offset:
                        await loader.maybe_flush_batches()
                        return loader.image
            except _DAMAGE as error:
                raise _DamagedLogError(offset, f"{file.name}: {describe_error(error)}") from error
        if offset == begin:
            return image
        await loader.maybe_flush_batches()
        return loader.image

    async def _batches(self, file: _File) -> AsyncIterator[RecordBatch]:
        """Yield the batches of a file. Raises OSError, and ProtocolError for a damaged batch."""
        path = f"{self.folder}/{file.name}"
        position, size = 0, await self._work.run(self.folder, partial(self._fs.size, path))
        while position < size:
            data = await self._work.run(self.folder, partial(_read, self._fs, path, position, size))
            begin = position
            for batch in iter_batches(data):
                if not isinstance(batch, RecordBatch) or not batch.is_valid:
                    raise ProtocolError(f"the batch at position {position} is not valid")
                yield batch
                position += batch.size
            if position == begin:
                raise ProtocolError(f"the file ends inside the batch at position {position}")


def _files(pattern: re.Pattern[str], names: Iterable[str]) -> list[_File]:
    return sorted(_File(int(match[1]), match[0]) for match in map(pattern.fullmatch, names) if match)


def _read(fs: FileSystem, path: str, position: int, size: int) -> bytes:
    """Read whole batches, at least one unless the file ends inside it. Raises OSError, ProtocolError."""
    # Kafka makes snapshots read-only, so the file is not opened for writing.
    file = fs.open(path, readonly=True)
    try:
        data = file.pread(min(READ_BYTES, size - position), position)
        length = int.from_bytes(data[8:12], "big") + 12
        if length > MAX_BATCH_BYTES:
            raise ProtocolError(f"the batch at position {position} has a length of {length} bytes")
        return data if length <= len(data) else file.pread(min(length, size - position), position)
    finally:
        file.close()


def _records(batch: RecordBatch) -> list[Record]:
    return list(batch.records(max_size=MAX_BATCH_BYTES))


def _value(record: Record) -> bytes:
    if record.value is None:
        raise ProtocolError(f"the record at offset {record.offset} has no value")
    return bytes(record.value)


def _committed(batch: RecordBatch, offset: int) -> CommittedBatch:
    """Return the records of a batch from an offset on."""
    records = [] if batch.is_control else [_value(one) for one in _records(batch) if one.offset >= offset]
    first = max(offset, batch.base_offset)
    epoch = batch.partition_leader_epoch
    return CommittedBatch(first, batch.last_offset, epoch, batch.max_timestamp, records, batch.size)


async def _publish_nothing(delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
    """Skip an image in the middle of the log."""
