"""The union of two lists of state batches (Kafka: PersisterStateBatchCombiner).

At each offset the batch with the highest delivery count takes precedence, and among equal counts the batch with the
highest delivery state. Adjacent batches with the same count and state are joined. The result therefore does not depend
on the order in which batches are combined, and a repeated write changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from ...runtime.loop_sharing import Steps

NO_START_OFFSET = -1
SPLICED_BATCHES = 16
"""Maximum number of batches that are inserted one by one. Each insertion copies a part of the list: for more batches,
one pass over all batches is cheaper."""
BATCHES_PER_STEP = 500


class PersisterStateBatch(NamedTuple):
    """A range of offsets with one delivery state; both ends are inclusive."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def combine_state_batches(
    batches_so_far: Sequence[PersisterStateBatch], new_batches: Sequence[PersisterStateBatch], start_offset: int
) -> list[PersisterStateBatch]:
    """Return the union of both lists from `start_offset` on, in the order of offsets, without overlaps.

    `batches_so_far` is the result of an earlier call. Up to `SPLICED_BATCHES` new batches may overlap and have any
    order; more must be normalized. With `start_offset` -1 no batch is dropped.
    """
    combined = _prune_sorted(batches_so_far, start_offset)
    added = _prune(new_batches, start_offset)
    if len(added) > SPLICED_BATCHES:
        return _merge(combined, added) if combined else added
    for batch in added:
        _insert(combined, batch)
    return combined


def _prune_sorted(batches: Sequence[PersisterStateBatch], start_offset: int) -> list[PersisterStateBatch]:
    """Prune sorted batches as `_prune` does, without a look at batches after the start offset."""
    begin = bisect_left(batches, (start_offset,))
    if begin and start_offset != NO_START_OFFSET:
        return _prune(batches[begin - 1 : begin], start_offset) + list(batches[begin:])
    return list(batches)


def _prune(batches: Iterable[PersisterStateBatch], start_offset: int) -> list[PersisterStateBatch]:
    """Return the parts of batches from `start_offset` on."""
    if start_offset == NO_START_OFFSET:
        return list(batches)
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def normalize(batches: Iterable[PersisterStateBatch]) -> list[PersisterStateBatch]:
    """Return the union of batches in any order: sorted, without overlaps, with adjacent equal batches joined."""
    steps = normalize_in_steps(batches)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: list[PersisterStateBatch] = stop.value
            return result


def normalize_in_steps(batches: Iterable[PersisterStateBatch]) -> Steps[list[PersisterStateBatch]]:
    """Normalize batches as `normalize` does, in slices of the event loop."""
    by_offset = sorted(batches)
    combined: list[PersisterStateBatch] = []
    if not _overlap(by_offset):
        for number, batch in enumerate(by_offset):
            _append(combined, *batch)
            if number % BATCHES_PER_STEP == 0:
                yield
        return combined
    active: list[tuple[int, int, int]] = []
    # A heap of the batches that begin at or before `offset`: negative count, negative state, last offset.
    offset, position, end = 0, 0, len(by_offset)
    while position < end or active:
        if not active:
            offset = by_offset[position].first_offset
        while position < end and by_offset[position].first_offset <= offset:
            _, last_offset, state, count = by_offset[position]
            heappush(active, (-count, -state, last_offset))
            position += 1
        while active and active[0][2] < offset:
            heappop(active)
        if not active:
            continue
        count, state, last_offset = active[0]
        if position < end:
            last_offset = min(last_offset, by_offset[position].first_offset - 1)
        _append(combined, offset, last_offset, -state, -count)
        offset = last_offset + 1
        if len(combined) % BATCHES_PER_STEP == 0:
            yield
    return combined


def _merge(left: Sequence[PersisterStateBatch], right: Sequence[PersisterStateBatch]) -> list[PersisterStateBatch]:
    """Return the union of two normalized lists."""
    combined: list[PersisterStateBatch] = []
    lefts, rights = iter(left), iter(right)
    one, other = next(lefts, None), next(rights, None)
    while one is not None and other is not None:
        if one.first_offset > other.first_offset:
            one, other, lefts, rights = other, one, rights, lefts
        first_offset = one.first_offset
        if first_offset < other.first_offset:
            last_offset = min(one.last_offset, other.first_offset - 1)
            _append(combined, first_offset, last_offset, one.delivery_state, one.delivery_count)
            one = _rest(one, last_offset) or next(lefts, None)
            continue
        last_offset = min(one.last_offset, other.last_offset)
        counts_more = (one.delivery_count, one.delivery_state) > (other.delivery_count, other.delivery_state)
        winner = one if counts_more else other
        _append(combined, first_offset, last_offset, winner.delivery_state, winner.delivery_count)
        one = _rest(one, last_offset) or next(lefts, None)
        other = _rest(other, last_offset) or next(rights, None)
    for last, remaining in ((one, lefts), (other, rights)):
        if last is not None:
            _append(combined, *last)
        for batch in remaining:
            _append(combined, *batch)
    return combined


def _rest(batch: PersisterStateBatch, offset: int) -> PersisterStateBatch | None:
    """Return the part of a batch after an offset."""
    return batch._replace(first_offset=offset + 1) if batch.last_offset > offset else None


def _overlap(by_offset: Iterable[PersisterStateBatch]) -> bool:
    """Return whether sorted batches overlap. Nearly all requests and records have batches that do not."""
    end = None
    for first_offset, last_offset, _, _ in by_offset:
        if end is not None and first_offset <= end:
            return True
        end = last_offset
    return False


def _insert(combined: list[PersisterStateBatch], batch: PersisterStateBatch) -> None:
    """Insert a batch into a sorted list without overlaps, which remains sorted and without overlaps."""
    first_offset, last_offset, state, count = batch
    begin = bisect_left(combined, (first_offset,))
    if begin and combined[begin - 1].last_offset >= first_offset:
        begin -= 1
    end = bisect_left(combined, (last_offset + 1,), begin)
    # One neighbour on each side may be adjacent and equal.
    left, right = max(begin - 1, 0), min(end + 1, len(combined))
    pieces = combined[left:begin]
    offset = first_offset
    for one in combined[begin:end]:
        if one.first_offset < offset:
            _append(pieces, one.first_offset, offset - 1, one.delivery_state, one.delivery_count)
        elif one.first_offset > offset:
            _append(pieces, offset, one.first_offset - 1, state, count)
            offset = one.first_offset
        overlap_end = min(one.last_offset, last_offset)
        if (one.delivery_count, one.delivery_state) > (count, state):
            _append(pieces, offset, overlap_end, one.delivery_state, one.delivery_count)
        else:
            _append(pieces, offset, overlap_end, state, count)
        if one.last_offset > last_offset:
            _append(pieces, last_offset + 1, one.last_offset, one.delivery_state, one.delivery_count)
        offset = overlap_end + 1
    if offset <= last_offset:
        _append(pieces, offset, last_offset, state, count)
    for one in combined[end:right]:
        _append(pieces, *one)
    combined[left:right] = pieces


def _append(batches: list[PersisterStateBatch], first_offset: int, last_offset: int, state: int, count: int) -> None:
    """Append a range of offsets, or extend the last batch if it is adjacent and equal."""
    if batches:
        last = batches[-1]
        if last.last_offset + 1 == first_offset and last.delivery_state == state and last.delivery_count == count:
            batches[-1] = PersisterStateBatch(last.first_offset, last_offset, state, count)
            return
    batches.append(PersisterStateBatch(first_offset, last_offset, state, count))
