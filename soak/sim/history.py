"""The acknowledgements of producers, the records of consumers, and the rules for both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class WriterKind:
    """The guarantees for a producer."""

    acks: Literal["all", 1] = "all"
    """The producer's acks. Records that were acknowledged with acks=1 may be lost."""
    is_idempotent: bool = True
    """Without idempotence, a record that was sent twice may be in the log twice."""


@dataclass
class History:
    """The history of one run. Record values are unique."""

    kinds: dict[str, WriterKind] = field(default_factory=dict)
    """The kind of each writer."""
    sent: dict[bytes, str] = field(default_factory=dict)
    """The writer of each value, in the order of the calls. A writer is one producer of one partition."""
    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    refused: dict[bytes, str] = field(default_factory=dict)
    """Failed records with their errors. No record should fail: the delivery timeout is longer than all faults."""
    seen: list[list[tuple[int, int, bytes]]] = field(default_factory=list)
    """The records of each consumer, in order: partition, offset, value."""
    final: dict[Place, bytes] = field(default_factory=dict)
    """The log, read from the start after all faults have ended."""

    def check(self) -> list[str]:
        """Return all violations."""
        return [
            *(f"refused: {value!r}: {reason}" for value, reason in self.refused.items()),
            *self._lost(),
            *self._invented(),
            *self._changed_under_readers(),
            *self._gaps(),
            *self._duplicates(),
            *self._reordered(),
        ]

    def _lost(self) -> Iterable[str]:
        for value, place in self.acknowledged.items():
            if self.kinds[self.sent[value]].acks == "all" and self.final.get(place) != value:
                yield f"lost: {value!r} was acknowledged at {place}, where {self.final.get(place)!r} is"

    def _invented(self) -> Iterable[str]:
        for place, value in self.final.items():
            if value not in self.sent:
                yield f"phantom: {value!r} at {place} was never sent"

    def _changed_under_readers(self) -> Iterable[str]:
        for number, reads in enumerate(self.seen):
            position: dict[int, int] = {}
            for partition, offset, value in reads:
                if self.final.get((partition, offset)) != value:
                    yield f"unread: reader {number} saw {value!r} at {(partition, offset)}"
                if offset != position.get(partition, offset):
                    yield f"skip: reader {number} read {offset} of {partition} instead of {position[partition]}"
                position[partition] = offset + 1

    def _gaps(self) -> Iterable[str]:
        ends: dict[int, int] = {}
        for partition, offset in sorted(self.final):
            if offset != ends.get(partition, 0):
                yield f"gap: {partition} has {offset} after {ends.get(partition, 0) - 1}"
            ends[partition] = offset + 1

    def _duplicates(self) -> Iterable[str]:
        places: dict[bytes, Place] = {}
        for place, value in self.final.items():
            if value in places and self._is_idempotent(value):
                yield f"duplicate: {value!r} at {places[value]} and {place}"
            places[value] = place

    def _reordered(self) -> Iterable[str]:
        order = {value: number for number, value in enumerate(self.sent)}
        last: dict[str, tuple[int, bytes]] = {}
        for place in sorted(self.final):
            value = self.final[place]
            if not self._is_idempotent(value):
                continue
            writer = self.sent.get(value, "")
            before = last.get(writer)
            number = order.get(value, -1)
            if before is not None and number < before[0]:
                yield f"order: {value!r} is after {before[1]!r} in {place[0]}"
            last[writer] = (number, value)

    def _is_idempotent(self, value: bytes) -> bool:
        return value not in self.sent or self.kinds[self.sent[value]].is_idempotent
