"""Batches of the metadata log, made into deltas and images."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from ...common.room_logger import room_logger
from ...protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    decode_metadata_record,
)
from ..runtime.loop_sharing import CountBudget
from .metadata_delta import MetadataDelta
from .metadata_error import MetadataError
from .metadata_image import EMPTY_IMAGE, MetadataImage
from .metadata_provenance import MetadataProvenance

logger = room_logger("metadata")

RECORDS_PER_TURN = 100
"""A record is decoded and applied in about 15 microseconds; a batch that creates a topic may have ten thousand."""


class CommittedBatch(NamedTuple):
    """A batch of the metadata log below the high watermark. A control batch has no `records`.

    `append_timestamp` is in milliseconds, `size` in bytes.
    """

    base_offset: int
    last_offset: int
    epoch: int
    append_timestamp: int
    records: Sequence[bytes]
    size: int


class Manifest(NamedTuple):
    """The origin of an image: the batches that were applied since the image before, or a snapshot."""

    provenance: MetadataProvenance
    is_snapshot: bool
    num_batches: int
    num_bytes: int


Publish: TypeAlias = Callable[[MetadataDelta, MetadataImage, Manifest], Awaitable[None]]


class MetadataBatchLoader:
    """Applies batches to a delta and publishes images between metadata transactions (Kafka's MetadataBatchLoader).

    The records of a transaction take effect together at its end, or not at all (KIP-868). A transaction may span any
    number of batches. Loop-thread methods; each call must end before the next one begins.
    """

    def __init__(self, publish: Publish) -> None:
        """`publish` gets each delta with the image after it."""
        self._publish = publish
        self._budget = CountBudget(RECORDS_PER_TURN)
        self.reset_to_image(EMPTY_IMAGE)

    def reset_to_image(self, image: MetadataImage) -> None:
        """Continue from an image, without the records that were applied since the last one."""
        self.image = image
        self._delta = MetadataDelta(image)
        self._last = image.provenance
        self._num_batches = self._num_bytes = 0
        self._is_in_transaction = False

    async def load_batch(self, batch: CommittedBatch) -> None:
        """Apply the records of a batch. Raises ProtocolError and MetadataError, after which the metadata are unusable.

        The loop serves other requests in between.
        """
        for offset, value in enumerate(batch.records, batch.base_offset):
            record = decode_metadata_record(value)
            match record:
                case BeginTransactionRecord():
                    await self._begin_transaction(record)
                case EndTransactionRecord() | AbortTransactionRecord():
                    self._end_transaction(record)
                case _:
                    self._delta.replay(record)
            self._last = MetadataProvenance(offset, batch.epoch, batch.append_timestamp, offset == batch.last_offset)
            await self._budget.step()
        # A control batch has no records, and a batch may end with more offsets than records.
        self._last = MetadataProvenance(batch.last_offset, batch.epoch, batch.append_timestamp)
        self._num_batches += 1
        self._num_bytes += batch.size

    async def maybe_flush_batches(self) -> None:
        """Publish the records since the last image, unless a transaction has begun and not ended."""
        if not self._is_in_transaction:
            await self._flush()

    async def _begin_transaction(self, record: BeginTransactionRecord) -> None:
        if self._is_in_transaction:
            raise MetadataError(f"the metadata transaction {record.name} begins in another one")
        # The records before the transaction have taken effect, even if it is aborted.
        if self._last != self.image.provenance:
            await self._flush()
        self._is_in_transaction = True

    def _end_transaction(self, record: EndTransactionRecord | AbortTransactionRecord) -> None:
        if not self._is_in_transaction:
            raise MetadataError(f"{type(record).__name__} outside of a metadata transaction")
        self._is_in_transaction = False
        if isinstance(record, AbortTransactionRecord):
            logger.info("a metadata transaction was aborted: %s", record.reason or "no reason given")
            self._delta = MetadataDelta(self.image)

    async def _flush(self) -> None:
        delta = self._delta
        manifest = Manifest(self._last, False, self._num_batches, self._num_bytes)
        image = await delta.apply(self._last)
        self.reset_to_image(image)
        await self._publish(delta, image, manifest)
