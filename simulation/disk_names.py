"""The names on a simulated disk: one tree of directories, with the changes that are not yet durable."""

from __future__ import annotations

import errno
import os
import posixpath
import random
from functools import lru_cache

from .disk_nodes import DirectoryNode, FileNode, NameChange, Node, Place, surviving_name_changes


def os_error(number: int, path: str) -> OSError:
    """Return the error of the operating system; Python selects the subclass by number."""
    return OSError(number, os.strerror(number), path)


@lru_cache(maxsize=4096)
def parts_of(path: str) -> tuple[str, ...]:
    """Return the names from the root to a path."""
    return tuple(part for part in posixpath.normpath(path).split("/") if part not in ("", "."))


class DiskNames:
    """A directory tree. Lookups see every change immediately; a power loss keeps some of those not made durable."""

    def __init__(self) -> None:
        self.root = DirectoryNode()
        self.changes: list[NameChange] = []

    def find(self, path: str) -> Node | None:
        """Return the entry at this path, if any."""
        return self._below_root(parts_of(path))

    def _below_root(self, parts: tuple[str, ...]) -> Node | None:
        node: Node = self.root
        for part in parts:
            if not isinstance(node, DirectoryNode):
                return None
            below = node.entries.get(part)
            if below is None:
                return None
            node = below
        return node

    def node(self, path: str) -> Node:
        """Return the entry at this path; FileNotFoundError if there is none."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        return node

    def directory(self, path: str) -> DirectoryNode:
        """Return the directory at this path; NotADirectoryError for a file."""
        node = self.node(path)
        if not isinstance(node, DirectoryNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> FileNode:
        """Return the file at this path; IsADirectoryError for a directory."""
        node = self.node(path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        return node

    def place(self, path: str) -> Place:
        """Return the directory that contains a path, which must exist, and the name in it, which need not."""
        parts = parts_of(path)
        parent = self._below_root(parts[:-1])
        if not isinstance(parent, DirectoryNode):
            raise os_error(errno.ENOENT if parent is None else errno.ENOTDIR, path)
        return parent, parts[-1] if parts else ""

    def change(self, change: NameChange, now_ms: int) -> None:
        """Apply a change that is not durable yet."""
        if change.source is not None:
            directory, name = change.source
            del directory.entries[name]
            directory.modified_ms = now_ms
        if change.target is not None:
            directory, name = change.target
            directory.entries[name] = change.node
            directory.modified_ms = now_ms
        self.changes.append(change)

    def make_durable(self, directory: DirectoryNode) -> None:
        """Make the pending changes of a directory durable, and the earlier ones elsewhere that they depend on."""
        chosen: list[bool] = []
        needed: set[tuple[int, str]] = set()
        for change in reversed(self.changes):
            names = {(id(place[0]), place[1]) for place in change.places()}
            take = change.touches(directory) or bool(names & needed)
            if take:
                needed |= names
            chosen.append(take)
        kept = []
        for change, take in zip(self.changes, reversed(chosen), strict=True):
            if take:
                change.apply_durable()
            else:
                kept.append(change)
        self.changes = kept

    def make_everything_durable(self) -> None:
        """Make all names and all file contents durable."""
        for change in self.changes:
            change.apply_durable()
        self.changes.clear()
        for node in self.files():
            node.make_durable()

    def files(self) -> list[FileNode]:
        """Return all files with a name."""
        return list(_files_below(self.root))

    def clone(self) -> DiskNames:
        """Return a copy for another world, with all pending changes."""
        copies: dict[int, Node] = {}
        twin = DiskNames()
        twin.root = _copy_directory(self.root, copies)
        twin.changes = [
            NameChange(_copy(c.node, copies), _copy_place(c.source, copies), _copy_place(c.target, copies))
            for c in self.changes
        ]
        return twin

    def after_power_loss(self, rng: random.Random, mode: str) -> DiskNames:
        """Return one of the trees that a power loss may leave: some pending changes of names, some of each file's
        content.
        """
        names: dict[int, dict[str, Node]] = {}

        def durable_names(directory: DirectoryNode) -> dict[str, Node]:
            if id(directory) not in names:
                names[id(directory)] = dict(directory.durable)
            return names[id(directory)]

        for change in surviving_name_changes(self.changes, rng, mode):
            if change.source is not None:
                durable_names(change.source[0]).pop(change.source[1], None)
            if change.target is not None:
                durable_names(change.target[0])[change.target[1]] = change.node

        def build(directory: DirectoryNode) -> DirectoryNode:
            twin = DirectoryNode(modified_ms=directory.modified_ms)
            for name, node in sorted(durable_names(directory).items()):
                twin.entries[name] = node.after_power_loss(rng) if isinstance(node, FileNode) else build(node)
            twin.durable = dict(twin.entries)
            return twin

        survivor = DiskNames()
        survivor.root = build(self.root)
        return survivor


def _copy(node: Node, copies: dict[int, Node]) -> Node:
    if isinstance(node, DirectoryNode):
        return _copy_directory(node, copies)
    if id(node) not in copies:
        copies[id(node)] = node.clone()
    return copies[id(node)]


def _copy_directory(directory: DirectoryNode, copies: dict[int, Node]) -> DirectoryNode:
    found = copies.get(id(directory))
    if isinstance(found, DirectoryNode):
        return found
    twin = DirectoryNode(modified_ms=directory.modified_ms)
    copies[id(directory)] = twin
    twin.entries = {name: _copy(node, copies) for name, node in directory.entries.items()}
    twin.durable = {name: _copy(node, copies) for name, node in directory.durable.items()}
    return twin


def _copy_place(place: Place | None, copies: dict[int, Node]) -> Place | None:
    return None if place is None else (_copy_directory(place[0], copies), place[1])


def _files_below(directory: DirectoryNode) -> list[FileNode]:
    files: list[FileNode] = []
    for node in directory.entries.values():
        if isinstance(node, FileNode):
            files.append(node)
        else:
            files.extend(_files_below(node))
    return files
