"""The publisher that stores snapshots of the metadata (Kafka: SnapshotGenerator).

Each replica of the metadata log makes its own snapshots. Old records are deleted when there is a newer snapshot
(`metadata.max.retention.*`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError
from ...protocol.metadata_records import encode_metadata_record
from ...storage.errors import LogDirFailedError, is_passing
from ...storage.metadata_snapshot import OffsetAndEpoch
from ..runtime.loop_sharing import CountBudget

if TYPE_CHECKING:
    from ..image.metadata_batch_loader import Manifest
    from ..image.metadata_delta import MetadataDelta
    from ..image.metadata_image import MetadataImage
    from .kafka_raft_client import KafkaRaftClient

logger = room_logger("raft")

RECORDS_PER_TURN = 100
"""Encoding a record takes about 10 microseconds."""


class SnapshotGenerator:
    """Stores a snapshot after enough bytes of records or enough time. A task writes a single snapshot at a time.

    It belongs to a broker, as the last publisher of its `MetadataLoader`; used on the loop's thread only.
    """

    name = "SnapshotGenerator"

    def __init__(
        self,
        client: KafkaRaftClient,
        loop: asyncio.AbstractEventLoop,
        *,
        max_record_bytes: int = 20 << 20,
        max_interval_ms: int = 3_600_000,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`max_record_bytes` is `metadata.log.max.record.bytes.between.snapshots`, `max_interval_ms` (0 for no limit)
        is `metadata.log.max.snapshot.interval.ms`. `on_fatal` is called with an error of the disk.
        """
        self._client = client
        self._loop = loop
        self._max_record_bytes = max_record_bytes
        self._max_interval_s = max_interval_ms / 1000
        self._on_fatal = on_fatal
        self._bytes = 0
        self._last_time = loop.time()
        self._task: asyncio.Task[None] | None = None

    async def on_metadata_update(self, _: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """Begin a snapshot of the image if it is due and no snapshot is being written."""
        if manifest.is_snapshot:
            self._reset()
            return
        self._bytes += manifest.num_bytes
        is_due = self._bytes >= self._max_record_bytes or (
            0 < self._max_interval_s <= self._loop.time() - self._last_time
        )
        # A snapshot cannot end inside a batch; the image after the next batch is due as well.
        if is_due and self._task is None and image.provenance.is_offset_batch_aligned:
            self._reset()
            self._task = self._loop.create_task(self._write(image))

    async def close(self) -> None:
        """Give up the snapshot that is being written."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _reset(self) -> None:
        self._bytes = 0
        self._last_time = self._loop.time()

    async def _write(self, image: MetadataImage) -> None:
        provenance = image.provenance
        snapshot_id = OffsetAndEpoch(provenance.last_contained_offset + 1, provenance.last_contained_epoch)
        try:
            timestamp = provenance.last_contained_log_time_ms
            if await self._client.create_snapshot(snapshot_id, timestamp, _values_of(image)):
                logger.info("stored snapshot %s of the metadata", snapshot_id)
        except (KafkaError, LogDirFailedError) as error:
            if is_passing(error):
                # The records are in the log: the next snapshot, after the usual interval, has them too.
                logger.error("snapshot %s of the metadata is not stored: %s", snapshot_id, error)
            else:
                logger.exception("cannot store snapshot %s of the metadata", snapshot_id)
                self._on_fatal(error)
        except Exception as error:
            logger.exception("cannot store snapshot %s of the metadata", snapshot_id)
            self._on_fatal(error)
        finally:
            self._task = None


async def _values_of(image: MetadataImage) -> AsyncIterator[bytes]:
    budget = CountBudget(RECORDS_PER_TURN)
    for record, version in image.write():
        yield encode_metadata_record(record, version)
        await budget.step()
