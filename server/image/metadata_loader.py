"""The listener of the metadata log that feeds the publishers of a broker."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

from ...common.room_logger import room_logger
from ...protocol.metadata_records import decode_metadata_record
from ..runtime.loop_sharing import CountBudget
from .metadata_batch_loader import RECORDS_PER_TURN, CommittedBatch, Manifest, MetadataBatchLoader
from .metadata_delta import MetadataDelta
from .metadata_image import EMPTY_IMAGE, MetadataImage
from .metadata_provenance import MetadataProvenance

logger = room_logger("metadata")


class LoadedSnapshot(NamedTuple):
    """A snapshot up to and including an offset. `batches` yields the values of its records, without control records.

    The offset is one less than the end offset in the snapshot's id. The timestamp in milliseconds is in its header.
    """

    last_contained_offset: int
    last_contained_epoch: int
    last_contained_log_timestamp: int
    batches: AsyncIterable[Sequence[bytes]]


class MetadataPublisher(Protocol):
    """A component that follows the metadata."""

    @property
    def name(self) -> str:
        """The name of the publisher in log messages."""

    async def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """Apply the changes that lead to an image. The first delta has everything that is in the image."""


class MetadataLoader:
    """Builds images from the metadata log and publishes them (Kafka's MetadataLoader).

    It belongs to a broker and runs on the event loop. The Raft client calls it, one call after another. Publishers
    receive no images until the replica of the log has caught up with the quorum once.
    """

    def __init__(self, *, high_watermark: Callable[[], int | None], lock: AbstractAsyncContextManager[object]) -> None:
        """`high_watermark` returns the end offset of the committed records; None if it is not known yet.

        `lock` serializes the calls: publishers are installed while the Raft client calls.
        """
        self._high_watermark = high_watermark
        self._has_caught_up = False
        self._lock = lock
        self._is_usable = True
        self._new_publishers: list[MetadataPublisher] = []
        self._publishers: list[MetadataPublisher] = []
        self._batch_loader = MetadataBatchLoader(self._publish)

    @property
    def image(self) -> MetadataImage:
        """Return the newest image outside of metadata transactions."""
        return self._batch_loader.image

    async def install_publishers(self, *publishers: MetadataPublisher) -> None:
        """Add publishers. Each gets the whole image once the replica of the log has caught up, and then each change.

        When this returns they have it, if the replica has caught up: the quorum may write no record for a long time.
        """
        async with self._lock:
            self._check_usable()
            self._new_publishers += publishers
            if self._has_caught_up:
                await self._initialize_new_publishers()

    async def handle_commit(self, batch: CommittedBatch) -> None:
        """Apply a committed batch. Raises ProtocolError and MetadataError, after which the metadata are unusable."""
        async with self._loading():
            await self._batch_loader.load_batch(batch)
            # A replica that catches up publishes one delta for all of the log, as in Kafka.
            if self._has_caught_up_once(batch.last_offset):
                await self._batch_loader.maybe_flush_batches()
                await self._initialize_new_publishers()

    async def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Replace the image by a snapshot and publish the difference. Raises ProtocolError and MetadataError."""
        async with self._loading():
            await self._load_snapshot(snapshot)

    async def _load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        delta, budget = MetadataDelta(EMPTY_IMAGE), CountBudget(RECORDS_PER_TURN)
        num_batches = num_bytes = 0
        async for batch in snapshot.batches:
            for value in batch:
                delta.replay(decode_metadata_record(value))
                num_bytes += len(value)
                await budget.step()
            num_batches += 1
        provenance = MetadataProvenance(
            snapshot.last_contained_offset, snapshot.last_contained_epoch, snapshot.last_contained_log_timestamp
        )
        image, before = await delta.apply(provenance), self.image
        logger.info(
            "loaded the snapshot of the metadata up to offset %d: %d batches, %d bytes",
            provenance.last_contained_offset,
            num_batches,
            num_bytes,
        )
        self._batch_loader.reset_to_image(image)
        if self._has_caught_up_once(provenance.last_contained_offset):
            manifest = Manifest(provenance, True, num_batches, num_bytes)
            await self._publish(await MetadataDelta.between(before, image), image, manifest)
            await self._initialize_new_publishers()

    @asynccontextmanager
    async def _loading(self) -> AsyncIterator[None]:
        async with self._lock:
            self._check_usable()
            self._is_usable = False
            yield
            self._is_usable = True

    def _check_usable(self) -> None:
        # After an error the image misses records.
        assert self._is_usable, "a call of a MetadataLoader follows a failed call"

    def _has_caught_up_once(self, last_offset: int) -> bool:
        if not self._has_caught_up:
            high_watermark = self._high_watermark()
            self._has_caught_up = high_watermark is not None and last_offset >= high_watermark - 1
        return self._has_caught_up

    async def _publish(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        for publisher in self._publishers:
            await _update(publisher, delta, image, manifest)

    async def _initialize_new_publishers(self) -> None:
        # Without an image the log begins with a transaction whose end was not handled yet.
        if not self._new_publishers or self.image is EMPTY_IMAGE:
            return
        publishers, self._new_publishers = self._new_publishers, []
        delta = await MetadataDelta.between(EMPTY_IMAGE, self.image)
        manifest = Manifest(self.image.provenance, True, 0, 0)
        for publisher in publishers:
            await _update(publisher, delta, self.image, manifest)
            self._publishers.append(publisher)


async def _update(publisher: MetadataPublisher, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
    try:
        await publisher.on_metadata_update(delta, image, manifest)
    except Exception:
        # As in Kafka, one publisher's failure does not keep the metadata from the others.
        logger.exception("%s cannot publish the metadata up to offset %d", publisher.name, image.provenance[0])
