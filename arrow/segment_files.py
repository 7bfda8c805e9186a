"""Partition directories on disk, read without a broker: their files, and the positions to split them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from ..protocol.errors import ProtocolError
from ..protocol.file_layouts import (
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    decode_snapshot,
    decode_transaction_index,
)
from ..protocol.record import ENTRY_FRONT, MIN_ENTRY_HEADER_SIZE, entry_size
from ..protocol.record_batch import Batch, RecordBatch, iter_batches
from ..protocol.topic_partition import TopicPartition
from .remote_path import AnyPath, expand, path_of

_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_SEGMENT = re.compile(r"(?P<base>\d{20})\.log")
BLOCK_BYTES = 2 << 20
_UNWRITTEN = bytes(MIN_ENTRY_HEADER_SIZE)
"""First bytes of an unwritten batch in a preallocated file."""
ROOM_BEHIND = 64
"""Bytes of memory after a block, so that records can be decoded in place."""


@dataclass(frozen=True)
class AbortedRange:
    """Offsets between which the records of this producer were aborted."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class SegmentRange:
    """Batches of one segment file that start from byte `start` up to, and without, `end`."""

    partition: TopicPartition
    path: str
    base_offset: int
    start: int
    end: int
    is_last: bool
    aborted: tuple[AbortedRange, ...] = ()
    end_offset: int | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


def find_folders(path: str, topics: frozenset[str]) -> list[tuple[TopicPartition, AnyPath]]:
    """Return the partition directories at or below each path that `path` (a pattern, or several by comma) matches.

    Raises FileNotFoundError if there is none.
    """
    found: dict[TopicPartition, AnyPath] = {}
    for pattern in path.split(","):
        for root in _matching(pattern.strip()):
            inside: list[AnyPath] = sorted(root.iterdir()) if root.is_dir() else []
            for folder in [root, *inside]:
                match = _FOLDER.fullmatch(folder.name)
                if match is None or not folder.is_dir() or (folder == root and not _segments(folder)):
                    continue
                tp = TopicPartition(match["topic"], int(match["partition"]))
                if not topics or tp.topic in topics:
                    found.setdefault(tp, folder)
    if not found:
        raise FileNotFoundError(f"no partition directory such as topic-0 at {path}")
    return sorted(found.items())


def plan_segments(tp: TopicPartition, folder: AnyPath, *, split_bytes: int, committed: bool) -> list[SegmentRange]:
    """Return the ranges of one directory, in order. With `committed` they contain the offsets to skip.

    Raises ProtocolError for files whose contents do not match their names.
    """
    segments = _segments(folder)
    aborted = _aborted(folder) if committed else ()
    stable = _last_stable_offset(folder, segments) if committed else None
    ranges: list[SegmentRange] = []
    for index, (base, path) in enumerate(segments):
        size = path.stat().st_size
        is_last = index + 1 == len(segments)
        behind = None if is_last else segments[index + 1][0]
        touching = tuple(a for a in aborted if a.last_offset >= base and (behind is None or a.first_offset < behind))
        whole = SegmentRange(tp, str(path), base, 0, size, is_last, touching, stable)
        cuts = [0, *_cuts(path, base, size, split_bytes), size]
        ranges += [replace(whole, start=a, end=b) for a, b in pairwise(cuts) if a < b]
    return ranges


def read_batches(r: SegmentRange) -> Iterator[list[Batch]]:
    """Yield the batches of a range, a block at a time; each batch's `position` is its position in the file.

    They are views of memory that the next block overwrites.

    Raises ProtocolError for an invalid batch, and for an incomplete or unwritten batch, except at the end of the log.
    """
    buffer = bytearray()
    path = path_of(r.path)
    with path.open("rb", buffering=0) as file:
        position, wanted = r.start, BLOCK_BYTES
        while position < r.end:
            if len(buffer) < wanted + ROOM_BEHIND:
                buffer = bytearray(wanted + ROOM_BEHIND)
            file.seek(position)
            view = memoryview(buffer)
            block = view[: file.readinto(view[:wanted])]
            head = bytes(block[:MIN_ENTRY_HEADER_SIZE])
            batches = [] if head == _UNWRITTEN else _first_batches(block, r, position)
            if batches:
                yield batches
                position, wanted = batches[-1].position + batches[-1].size, BLOCK_BYTES
                continue
            needed = _size_of_next(block)
            if needed is None or position + needed > path.stat().st_size:
                if r.is_last and _is_end(file, path, position, head):
                    return
                raise ProtocolError(f"{r.path}: incomplete batch at position {position}")
            wanted = needed


def _is_end(file: BinaryIO, path: AnyPath, position: int, head: bytes) -> bool:
    """Return whether the log ends at `head`, an incomplete batch: it is not written yet, or a crash truncated it.

    It does not if the index has a later batch, or if there are bytes after zeros. A running broker may have continued
    to write.
    """
    index = path.with_suffix(".index")
    entries = OFFSET_INDEX_ENTRY.read_all(index.read_bytes()) if index.is_file() else ()
    goes_on = any(entry[1] > position for entry in entries)
    if not goes_on and head == _UNWRITTEN:
        file.seek(position)
        while not goes_on and (block := file.read(BLOCK_BYTES)):
            goes_on = block.count(0) != len(block)
    file.seek(position)
    return not goes_on or file.read(len(head)) != head


def _first_batches(block: memoryview, r: SegmentRange, position: int) -> list[Batch]:
    """Return the batches of a block that belong to the range, up to the first invalid bytes.

    Raises ProtocolError if these are at the start of the block.
    """
    batches: list[Batch] = []
    try:
        for batch in iter_batches(block):
            batch.position += position
            if batch.position >= r.end:
                break
            batches.append(batch)
    except ProtocolError as error:
        if not batches:
            raise ProtocolError(f"{r.path}: invalid batch at position {position}: {error}") from error
    return batches


def _size_of_next(block: bytes | memoryview) -> int | None:
    """Return the size of the first batch of a block; None if the size is incomplete, or no batch begins."""
    try:
        return entry_size(block, 0) if len(block) >= MIN_ENTRY_HEADER_SIZE else None
    except ProtocolError:
        return None


def _matching(pattern: str) -> list[AnyPath]:
    """Return the paths that a pattern, or a URL, matches, in order."""
    if "://" in pattern:
        return expand(pattern)
    return [Path(name) for name in sorted(glob(pattern))]  # noqa: PTH207  # a pattern may be absolute


def _segments(folder: AnyPath) -> list[tuple[int, AnyPath]]:
    matches = ((_SEGMENT.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match["base"]), path) for match, path in matches if match is not None)


def _cuts(path: AnyPath, base: int, size: int, split_bytes: int) -> list[int]:
    """Return positions of batches, about `split_bytes` apart: by the segment's index, whose entries are verified.

    A running broker has not written all of the index; after its last entry the headers of the batches are read.
    """
    if 2 * size < 3 * split_bytes:
        return []
    cuts = [0]
    with path.open("rb") as file:
        index = path.with_suffix(".index")
        entries = OFFSET_INDEX_ENTRY.read_all(index.read_bytes()) if index.is_file() else ()
        last = 0
        for delta, position in entries:
            if position <= last and last:
                break  # the zeros of a preallocated index
            if _is_due(cuts, position, size, split_bytes) and _is_batch(file, position, base + delta):
                cuts.append(position)
            last = position
        position = cuts[-1]
        while last + split_bytes < size and position < size:
            if _is_due(cuts, position, size, split_bytes):
                cuts.append(position)
            file.seek(position)
            needed = _size_of_next(file.read(MIN_ENTRY_HEADER_SIZE))
            if needed is None:
                break
            position += needed
    return cuts[1:]


def _is_due(cuts: list[int], position: int, size: int, split_bytes: int) -> bool:
    """Return whether a segment may be split at this position: far enough after the last split, and before the end."""
    return cuts[-1] + split_bytes <= position <= size - split_bytes // 2


def _is_batch(file: BinaryIO, position: int, last_offset: int) -> bool:
    file.seek(position)
    head: bytes = file.read(MIN_ENTRY_HEADER_SIZE)
    return _size_of_next(head) is not None and ENTRY_FRONT.read(head).offset <= last_offset


def _aborted(folder: AnyPath) -> tuple[AbortedRange, ...]:
    found: list[AbortedRange] = []
    paths: list[AnyPath] = sorted(folder.glob("*.txnindex"))
    for path in paths:
        entries = decode_transaction_index(path.read_bytes())
        found += [AbortedRange(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries]
    return tuple(found)


def _last_stable_offset(folder: AnyPath, segments: list[tuple[int, AnyPath]]) -> int | None:
    """Return the start of the oldest open transaction; None if there is none.

    By the newest valid producer snapshot at the start of a segment, and the headers of later batches.
    """
    since, open_since = _newest_snapshot(folder, {base for base, _ in segments})
    tp = TopicPartition("", 0)
    for index, (base, path) in enumerate(segments):
        if base < since:
            continue
        is_last = index + 1 == len(segments)
        for batches in read_batches(SegmentRange(tp, str(path), base, 0, path.stat().st_size, is_last)):
            for batch in batches:
                if isinstance(batch, RecordBatch) and batch.is_transactional:
                    if batch.is_control:
                        open_since.pop(batch.producer_id, None)
                    else:
                        open_since.setdefault(batch.producer_id, batch.base_offset)
    return min(open_since.values(), default=None)


class PartitionFiles:
    """The segments of one partition directory, with the names and sizes that they have now."""

    def __init__(self, tp: TopicPartition, folder: AnyPath) -> None:
        self.partition = tp
        self._folder = folder
        self._segments = _segments(folder)
        self._sizes = [path.stat().st_size for _, path in self._segments]

    @property
    def first_offset(self) -> int:
        """Return the base offset of the first segment; 0 without segments."""
        return self._segments[0][0] if self._segments else 0

    def end_offset(self) -> int:
        """Return the offset after the last complete batch. Raises ProtocolError if the last segment is damaged."""
        if not self._segments:
            return 0
        base, path = self._segments[-1]
        size = self._sizes[-1]
        with path.open("rb") as file:
            known = [(base + delta, at) for delta, at in _index(path) if at < size]
            is_sound = bool(known) and _is_batch(file, known[-1][1], known[-1][0])
            last = _last_batch(file, path, known[-1][1] if is_sound else 0, size)
            return base if last is None else last.last_offset + 1

    def ranges_between(self, start: int, end: int) -> Iterator[SegmentRange]:
        """Yield the parts of segments with these offsets; the first batches may be below `start`."""
        for index, (base, path) in enumerate(self._segments):
            behind = self._segments[index + 1][0] if index + 1 < len(self._segments) else None
            if base >= end or (behind is not None and behind <= start):
                continue
            position = self._position(base, path, start) if start > base else 0
            yield self._range(index, position)

    def ranges_from_time(self, timestamp: int) -> Iterator[SegmentRange]:
        """Yield the parts of segments that may have records at or after a time in ms."""
        for index, (base, path) in enumerate(self._segments):
            times = path.with_suffix(".timeindex")
            entries = TIME_INDEX_ENTRY.read_all(times.read_bytes()) if times.is_file() else ()
            # Zeros of a preallocated index have no offset.
            before = [entry for entry in entries if entry[0] < timestamp and entry[1] > 0]
            position = self._position(base, path, base + before[-1][1]) if before else 0
            yield self._range(index, position)

    def aborted(self) -> tuple[AbortedRange, ...]:
        """Return the aborted transactions. Raises ProtocolError."""
        return _aborted(self._folder)

    def last_stable_offset(self) -> int | None:
        """Return the start of the oldest open transaction; None if there is none. Raises ProtocolError."""
        return _last_stable_offset(self._folder, self._segments)

    def _range(self, index: int, position: int) -> SegmentRange:
        base, path = self._segments[index]
        is_last = index + 1 == len(self._segments)
        return SegmentRange(self.partition, str(path), base, position, self._sizes[index], is_last)

    def _position(self, base: int, path: AnyPath, offset: int) -> int:
        """Return the position of a batch at or before the one with this offset, from the index if it is valid."""
        below = [entry for entry in _index(path) if base + entry[0] < offset]
        if not below:
            return 0
        with path.open("rb") as file:
            return below[-1][1] if _is_batch(file, below[-1][1], base + below[-1][0]) else 0


def _index(path: AnyPath) -> list[tuple[int, int]]:
    """Return the entries of a segment's index without the zeros of a preallocated file: relative offset, position."""
    index = path.with_suffix(".index")
    found: list[tuple[int, int]] = []
    for delta, position in OFFSET_INDEX_ENTRY.read_all(index.read_bytes()) if index.is_file() else ():
        if found and position <= found[-1][1]:
            break
        found.append((delta, position))
    return found


def _last_batch(file: BinaryIO, path: AnyPath, position: int, size: int) -> Batch | None:
    """Return the last batch from a position on, None without one. Raises ProtocolError if batches follow it."""
    last: tuple[int, int] | None = None
    while position < size:
        file.seek(position)
        head = file.read(MIN_ENTRY_HEADER_SIZE)
        try:
            is_start = len(head) == MIN_ENTRY_HEADER_SIZE and head != _UNWRITTEN
            needed = entry_size(head, 0) if is_start else None
        except ProtocolError as error:
            raise ProtocolError(f"{path}: invalid batch at position {position}: {error}") from error
        if needed is None or position + needed > size:
            if not _is_end(file, path, position, head):
                raise ProtocolError(f"{path}: incomplete batch at position {position}")
            break
        last, position = (position, needed), position + needed
    if last is None:
        return None
    file.seek(last[0])
    return next(iter_batches(memoryview(file.read(last[1]))))


def _newest_snapshot(folder: AnyPath, bases: set[int]) -> tuple[int, dict[int, int]]:
    """Return the offset of a snapshot, and producer id -> start of its open transaction; (0, {}) without a snapshot."""
    paths = (path for path in folder.glob("*.snapshot") if path.stem.isdecimal() and int(path.stem) in bases)
    for path in sorted(paths, reverse=True):
        try:
            entries = decode_snapshot(path.read_bytes())
        except ProtocolError:
            continue  # skipped, as by a broker
        newest = {entry.producer_id: entry.current_txn_first_offset for entry in entries}
        return int(path.stem), {producer: offset for producer, offset in newest.items() if offset >= 0}
    return 0, {}
