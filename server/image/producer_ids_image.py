"""The next block of producer ids of a KRaft cluster, and its change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...protocol.metadata_records import ProducerIdsRecord

NO_PRODUCER_ID = -1


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    """The first producer id of the next block; -1 before the first block."""

    next_producer_id: int = NO_PRODUCER_ID

    def write(self) -> Iterator[tuple[Any, int]]:
        """Yield the record, with its version."""
        if self.next_producer_id != NO_PRODUCER_ID:
            yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id), 0


class ProducerIdsDelta:
    """The change of the next block. `image` has the block before it."""

    def __init__(self, image: ProducerIdsImage) -> None:
        self.image = image
        self.next_producer_id = image.next_producer_id

    def replay(self, record: ProducerIdsRecord) -> None:
        """Set the next block."""
        self.next_producer_id = record.next_producer_id

    def apply(self) -> ProducerIdsImage:
        """Return the next block after the change."""
        return ProducerIdsImage(self.next_producer_id)

    @classmethod
    def between(cls, before: ProducerIdsImage, after: ProducerIdsImage) -> ProducerIdsDelta | None:
        """Return the change that makes `after` of `before`; None without any."""
        if before == after:
            return None
        delta = cls(before)
        delta.next_producer_id = after.next_producer_id
        return delta
