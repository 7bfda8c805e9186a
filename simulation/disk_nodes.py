"""Files and directories of a simulated disk: the visible and the durable contents, and the changes in between."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TypeAlias

SECTOR = 512


@dataclass(slots=True, frozen=True)
class DiskWrite:
    """Bytes written at a position."""

    position: int
    data: bytes


@dataclass(slots=True, frozen=True)
class Resize:
    """The file truncated or extended with zeros to `size` bytes."""

    size: int


Change: TypeAlias = DiskWrite | Resize


def apply_change(image: bytearray, change: Change) -> None:
    """Apply one change to a file image; a gap before a write becomes zeros."""
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
    """Split a write at sector boundaries: a power loss keeps any subset of the parts."""
    pieces = []
    start, end = change.position, change.position + len(change.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        pieces.append(DiskWrite(start, change.data[start - change.position : stop - change.position]))
        start = stop
    return pieces


def _chance(rng: random.Random) -> float:
    """Return the probability that one change survives; both ends are frequent because they are whole classes of
    outcomes.
    """
    return rng.choice((0.0, 0.3, 0.7, 0.9, 1.0))


@dataclass(eq=False, slots=True)
class FileNode:
    """One file. `cache` is returned by reads; a power loss leaves `durable` plus any subset of `pending`."""

    cache: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    modified_ms: int = 0
    links: int = 1
    handles: int = 0

    def change(self, change: Change) -> None:
        """Apply one change to the cache and record it as not durable."""
        apply_change(self.cache, change)
        self.pending.append(change)

    def make_durable(self) -> None:
        """Apply a successful fsync."""
        for change in self.pending:
            apply_change(self.durable, change)
        self.pending.clear()

    def clone(self) -> FileNode:
        """Return a copy for another world: cache, durable image and pending changes, no open handles."""
        return FileNode(
            cache=bytearray(self.cache),
            durable=bytearray(self.durable),
            pending=list(self.pending),
            modified_ms=self.modified_ms,
        )

    def after_power_loss(self, rng: random.Random) -> FileNode:
        """Return one of the files that a power loss may leave: any subset of the pending changes, torn at sectors."""
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
    """One directory. `entries` is visible to lookups, `durable` has the names that survive a power loss for certain."""

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
        """Return the names of this change."""
        return [place for place in (self.source, self.target) if place is not None]

    def apply_durable(self) -> None:
        """Apply the change to the durable names."""
        if self.source is not None:
            self.source[0].durable.pop(self.source[1], None)
        if self.target is not None:
            self.target[0].durable[self.target[1]] = self.node

    def touches(self, directory: DirectoryNode) -> bool:
        """Return whether an fsync of the directory makes this change durable."""
        return any(place[0] is directory for place in self.places())


def surviving_name_changes(changes: list[NameChange], rng: random.Random, mode: str) -> list[NameChange]:
    """Return the directory operations that a power loss keeps, in order.

    Mode A keeps a prefix, as a journal does. Mode B keeps any subset in which no change survives a lost earlier change
    of the same name: file systems may make the names of one directory durable in any order.
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
