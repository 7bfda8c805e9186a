"""The check of records that a leader sends to its followers, in one step for batches of format v2."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .batch_header import HEADER_SIZE, BatchHeader, batch_crc
from .native import native
from .record import LOG_OVERHEAD, NO_TIMESTAMP

_MAX_OFFSET = 2**63 - 1


class ReplicatedBatches(NamedTuple):
    """The batches at the beginning of a buffer that continue a log. Without a batch `end` is 0."""

    end: int
    """The position after the last of these batches."""
    first_offset: int
    last_offset: int
    offset_count: int
    """The sum of the numbers of offsets from the first to the last offset of each batch."""
    max_timestamp: int
    """The largest timestamp of all batches, at least -1."""
    producer_positions: list[int]
    """The positions of the batches that have a producer id."""
    epoch_starts: list[tuple[int, int]]
    """(leader epoch, first offset) of the first batch, and of each batch whose epoch differs from its predecessor's."""


def check_replicated_batches_py(
    data: memoryview, next_offset: int, leader_epoch: int
) -> tuple[int, int, int, int, int, list[int], list[tuple[int, int]]]:
    """Return the fields of `ReplicatedBatches` for the batches before the first entry of another kind.

    A batch is complete, has format v2 and a valid CRC, begins at or after `next_offset` and the end of its predecessor,
    and has no epoch after `leader_epoch` unless that is -1. `log_validator` examines other entries.
    """
    first_offset = last_offset = -1
    position, offset_count, max_timestamp = 0, 0, NO_TIMESTAMP
    producer_positions: list[int] = []
    epoch_starts: list[tuple[int, int]] = []
    while len(data) - position >= HEADER_SIZE:
        header = BatchHeader.read(data, position)
        size = header.length + LOG_OVERHEAD
        if header.magic != 2 or not HEADER_SIZE <= size <= len(data) - position:
            break
        epoch, last = header.partition_leader_epoch, header.last_offset
        if epoch > leader_epoch >= 0 or not next_offset <= header.base_offset <= last < _MAX_OFFSET:
            break
        if header.crc != batch_crc(data[position : position + size]):
            break
        if epoch >= 0 and (not epoch_starts or epoch_starts[-1][0] != epoch):
            epoch_starts.append((epoch, header.base_offset))
        if header.has_producer_id:
            producer_positions.append(position)
        if first_offset < 0:
            first_offset = header.base_offset
        max_timestamp = max(max_timestamp, header.max_timestamp)
        offset_count += last - header.base_offset + 1
        last_offset, next_offset = last, last + 1
        position += size
    return position, first_offset, last_offset, offset_count, max_timestamp, producer_positions, epoch_starts


# Looked up by name, because an extension that was compiled from older sources does not have this function.
_check: Callable[[memoryview, int, int], tuple[int, int, int, int, int, list[int], list[tuple[int, int]]]] = getattr(
    native, "check_replicated_batches", check_replicated_batches_py
)


def check_replicated_batches(data: memoryview, next_offset: int, leader_epoch: int) -> ReplicatedBatches:
    """Return the batches of format v2 that continue a log: `check_replicated_batches_py`, compiled if available."""
    return ReplicatedBatches(*_check(data, next_offset, leader_epoch))
