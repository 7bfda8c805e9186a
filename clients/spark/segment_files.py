"""Partition folders on disk, read without a broker: which files there are, and where to cut them.

Segments are `<base offset>.log`; beside them `.index` (i32 offset from the base, i32 position, sparse, positions of
batches), `.txnindex` (i16 version, i64 producer id, i64 first offset, i64 last offset, i64 last stable offset) and
`.snapshot` (i16 version, u32 CRC, i32 count, then per producer i64 id, i16 epoch, i32 last sequence, i64 last offset,
i32 offset delta, i64 timestamp, i32 coordinator epoch, i64 first offset of an open transaction or -1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from glob import glob
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from ...protocol.batch_header import HEADER_SIZE
from ...protocol.errors import ProtocolError
from ...protocol.record import LOG_OVERHEAD, MAGIC_POSITION, MIN_ENTRY_HEADER_SIZE
from ...protocol.record_batch import Batch, RecordBatch, iter_batches
from ...protocol.topic_partition import TopicPartition

_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_SEGMENT = re.compile(r"(?P<base>\d{20})\.log")
_index_entry = Struct(">ii")
_txn_entry = Struct(">hqqqq")
_snapshot_head = Struct(">hIi")
_snapshot_entry = Struct(">qhiqiqiq")
_entry_head = Struct(">qi")
BLOCK_BYTES = 2 << 20
ROOM_BEHIND = 64
"""Bytes of memory behind a block, so that who decodes it where it is may look some bytes past its end."""


@dataclass(frozen=True)
class AbortedRange:
    """Offsets between which what this producer wrote was aborted."""

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


def find_folders(path: str, topics: frozenset[str]) -> list[tuple[TopicPartition, Path]]:
    """Partition folders at or right below each path that `path` (a pattern, or several by comma) matches.

    Raises FileNotFoundError if there is none.
    """
    found: dict[TopicPartition, Path] = {}
    for pattern in path.split(","):
        for name in sorted(glob(pattern.strip())):  # noqa: PTH207  # a pattern may be absolute
            root = Path(name)
            for folder in [root, *(sorted(root.iterdir()) if root.is_dir() else [])]:
                match = _FOLDER.fullmatch(folder.name)
                if match is None or not folder.is_dir() or (folder == root and not _segments(folder)):
                    continue
                tp = TopicPartition(match["topic"], int(match["partition"]))
                if not topics or tp.topic in topics:
                    found.setdefault(tp, folder)
    if not found:
        raise FileNotFoundError(f"no partition folder such as topic-0 at {path}")
    return sorted(found.items())


def plan_segments(tp: TopicPartition, folder: Path, *, split_bytes: int, committed: bool) -> list[SegmentRange]:
    """The ranges of one folder, in order. With `committed` they know which offsets to pass over."""
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
    """The batches of a range, a block at a time; each batch's `position` is its place in the file.

    They are views over memory that the next block is read into.

    Raises ProtocolError for bytes that are no batch, or a batch that is cut off in a segment that is not the last.
    """
    buffer = bytearray()
    with Path(r.path).open("rb", buffering=0) as file:
        position, wanted = r.start, BLOCK_BYTES
        while position < r.end:
            if len(buffer) < wanted + ROOM_BEHIND:
                buffer = bytearray(wanted + ROOM_BEHIND)
            file.seek(position)
            view = memoryview(buffer)
            block = view[: file.readinto(view[:wanted])]
            if block[:MIN_ENTRY_HEADER_SIZE] == bytes(MIN_ENTRY_HEADER_SIZE):
                return  # the file is preallocated, and this was not written yet
            batches = _first_batches(block, r, position)
            if batches:
                yield batches
                position, wanted = batches[-1].position + batches[-1].size, BLOCK_BYTES
                continue
            needed = _size_of_next(block)
            if needed is None or position + needed > Path(r.path).stat().st_size:
                if r.is_last:
                    return
                raise ProtocolError(f"{r.path}: a batch is cut off at position {position}")
            wanted = needed


def _first_batches(block: memoryview, r: SegmentRange, position: int) -> list[Batch]:
    """The batches of a block that belong to the range, up to the first bytes that are no batch.

    Raises ProtocolError if that is where the block begins.
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
            raise ProtocolError(f"{r.path}: no batch at position {position}: {error}") from error
    return batches


def _size_of_next(block: bytes | memoryview) -> int | None:
    """Bytes of the batch that a block begins with; None if not even its size is there."""
    if len(block) < MIN_ENTRY_HEADER_SIZE:
        return None
    return LOG_OVERHEAD + int(_entry_head.unpack_from(block)[1])


def _segments(folder: Path) -> list[tuple[int, Path]]:
    matches = ((_SEGMENT.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match["base"]), path) for match, path in matches if match is not None)


def _cuts(path: Path, base: int, size: int, split_bytes: int) -> list[int]:
    """Positions of batches, about `split_bytes` apart: by the segment's index, each looked at before it is used.

    A broker that runs has not written all of the index; from there on the headers of the batches are walked through.
    """
    if 2 * size < 3 * split_bytes:
        return []
    cuts = [0]
    with path.open("rb") as file:
        index = path.with_suffix(".index")
        entries = _index_entry.iter_unpack(_whole(index.read_bytes(), _index_entry.size)) if index.is_file() else ()
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
            if needed is None or needed < MIN_ENTRY_HEADER_SIZE:
                break
            position += needed
    return cuts[1:]


def _is_due(cuts: list[int], position: int, size: int, split_bytes: int) -> bool:
    """Whether a segment may be cut here: far enough behind the last cut, and before the end."""
    return cuts[-1] + split_bytes <= position <= size - split_bytes // 2


def _whole(data: bytes, size: int) -> bytes:
    """Without an entry that is cut off."""
    return data[: len(data) // size * size]


def _is_batch(file: BinaryIO, position: int, last_offset: int) -> bool:
    file.seek(position)
    head: bytes = file.read(HEADER_SIZE)
    if len(head) < HEADER_SIZE or head[MAGIC_POSITION] > 2:
        return False
    offset, size = _entry_head.unpack_from(head)
    return int(offset) <= last_offset and int(size) >= MIN_ENTRY_HEADER_SIZE - LOG_OVERHEAD


def _aborted(folder: Path) -> tuple[AbortedRange, ...]:
    found = []
    for path in sorted(folder.glob("*.txnindex")):
        for _, producer, first, last, _ in _txn_entry.iter_unpack(_whole(path.read_bytes(), _txn_entry.size)):
            found.append(AbortedRange(producer, first, last))
    return tuple(found)


def _last_stable_offset(folder: Path, segments: list[tuple[int, Path]]) -> int | None:
    """Where the oldest open transaction begins; None if there is none.

    By the newest producer snapshot at the start of a segment, and the headers of the batches from there on.
    """
    bases = {base for base, _ in segments}
    snapshots = sorted(path for path in folder.glob("*.snapshot") if path.stem.isdecimal() and int(path.stem) in bases)
    since, open_since = (int(snapshots[-1].stem), _open_in_snapshot(snapshots[-1])) if snapshots else (0, {})
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


def _open_in_snapshot(path: Path) -> dict[int, int]:
    data = path.read_bytes()
    if len(data) < _snapshot_head.size:
        return {}
    _, _, count = _snapshot_head.unpack_from(data)
    end = _snapshot_head.size + count * _snapshot_entry.size
    entries = _snapshot_entry.iter_unpack(data[_snapshot_head.size : end]) if end <= len(data) else ()
    return {entry[0]: entry[-1] for entry in entries if entry[-1] >= 0}
