"""Files and directories of a simulated disk: what reads see, what is durable, and the changes in between."""

from __future__ import annotations

import random
import weakref
from array import array
from dataclasses import dataclass, field
from typing import TypeAlias

SECTOR = 512
PAGE = 4096
POISON = 0xEE
"""Fills the part of a mapping that lies beyond the end of its file: a read there would be SIGBUS on a real machine."""


@dataclass(slots=True, frozen=True)
class DiskWrite:
    """Bytes put at a position."""

    position: int
    data: bytes


@dataclass(slots=True, frozen=True)
class Resize:
    """The file cut or extended with zeros to `size` bytes."""

    size: int


Change: TypeAlias = DiskWrite | Resize


def apply_change(image: bytearray, change: Change) -> None:
    """Performs one change on a file image; a gap before a write becomes zeros."""
    if isinstance(change, Resize):
        if change.size < len(image):
            del image[change.size :]
        else:
            image.extend(bytes(change.size - len(image)))
        return
    end = change.position + len(change.data)
    if change.position > len(image):
        image.extend(bytes(change.position - len(image)))
    image[change.position : end] = change.data


def _sectors(change: DiskWrite) -> list[DiskWrite]:
    """The write cut at sector boundaries: the pieces of which a power loss keeps any subset."""
    pieces = []
    start, end = change.position, change.position + len(change.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        pieces.append(DiskWrite(start, change.data[start - change.position : stop - change.position]))
        start = stop
    return pieces


def _chance(rng: random.Random) -> float:
    """How likely one change survives; the ends are drawn often because they are whole classes of outcomes."""
    return rng.choice((0.0, 0.3, 0.7, 0.9, 1.0))


@dataclass(eq=False, slots=True)
class FileNode:
    """One file. `cache` is what reads see; `durable` plus any subset of `pending` is what a power loss leaves."""

    cache: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    mappings: list[weakref.ref[array[int]]] = field(default_factory=list)
    modified_ms: int = 0
    links: int = 1
    handles: int = 0

    def change(self, change: Change) -> None:
        """Performs one change in the cache and remembers it as not yet durable."""
        apply_change(self.cache, change)
        self.pending.append(change)
        if self.mappings:
            self._refresh_mappings()

    def make_durable(self) -> None:
        """What a successful fsync does."""
        for change in self.pending:
            apply_change(self.durable, change)
        self.pending.clear()

    def map(self, length: int) -> array[int]:
        """A buffer that follows later writes, as a shared read-only mapping does."""
        mapping = array("B", bytes(length))
        self.mappings.append(weakref.ref(mapping))
        self._refresh_mappings()
        return mapping

    def _refresh_mappings(self) -> None:
        alive = []
        for reference in self.mappings:
            mapping = reference()
            if mapping is None:
                continue
            alive.append(reference)
            size = len(self.cache)
            zeros = bytes(-size % PAGE)
            poison = bytes([POISON]) * max(0, len(mapping) - size - len(zeros))
            image = (self.cache[: len(mapping)] + zeros + poison)[: len(mapping)]
            memoryview(mapping)[:] = memoryview(image).cast("B")
        self.mappings[:] = alive

    def clone(self) -> FileNode:
        """The same file for another world: cache, durable image and pending changes, no open handles."""
        return FileNode(
            cache=bytearray(self.cache),
            durable=bytearray(self.durable),
            pending=list(self.pending),
            modified_ms=self.modified_ms,
        )

    def after_power_loss(self, rng: random.Random) -> FileNode:
        """One of the files a power loss may leave: any subset of the pending changes, torn at sectors."""
        image = bytearray(self.durable)
        if self.pending:
            chance = _chance(rng)
            for change in self.pending:
                _survive(image, change, chance, rng)
        return FileNode(cache=image, durable=bytearray(image), modified_ms=self.modified_ms)


def _survive(image: bytearray, change: Change, chance: float, rng: random.Random) -> None:
    if isinstance(change, Resize):
        if rng.random() < chance:
            apply_change(image, change)
        return
    grew = rng.random() < 0.5
    for piece in _sectors(change):
        if rng.random() < chance:
            apply_change(image, piece)
        elif grew:
            # The new size reached the disk before the data: the hole reads as zeros.
            end = piece.position + len(piece.data)
            if end > len(image):
                apply_change(image, Resize(end))


@dataclass(eq=False, slots=True)
class DirectoryNode:
    """One directory. `entries` is what lookups see, `durable` the names that survive a power loss for sure."""

    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    modified_ms: int = 0


Node: TypeAlias = FileNode | DirectoryNode
Place: TypeAlias = tuple[DirectoryNode, str]


@dataclass(slots=True, frozen=True)
class NameChange:
    """One directory operation that is not yet durable.

    A link has only `target`, an unlink only `source`, a rename both: it happens wholly or not at all.
    """

    node: Node
    source: Place | None = None
    target: Place | None = None

    def places(self) -> list[Place]:
        """The names this change touches."""
        return [place for place in (self.source, self.target) if place is not None]

    def apply_durable(self) -> None:
        """Performs the change on the durable names."""
        if self.source is not None:
            self.source[0].durable.pop(self.source[1], None)
        if self.target is not None:
            self.target[0].durable[self.target[1]] = self.node

    def touches(self, directory: DirectoryNode) -> bool:
        """Whether an fsync of the directory makes this change durable."""
        return any(place[0] is directory for place in self.places())


def surviving_name_changes(changes: list[NameChange], rng: random.Random, mode: str) -> list[NameChange]:
    """Which directory operations a power loss keeps, in order.

    Mode A keeps a prefix, as a journal does. Mode B keeps any subset in which no change survives a lost earlier
    change of the same name: file systems may make the names of one directory durable in any order.
    """
    if mode == "A":
        return changes[: rng.randint(0, len(changes))]
    chance = _chance(rng)
    kept: list[NameChange] = []
    lost: set[tuple[int, str]] = set()
    for change in changes:
        names = {(id(directory), name) for directory, name in change.places()}
        if not (names & lost) and rng.random() < chance:
            kept.append(change)
        else:
            lost |= names
    return kept
