"""Takes a backup: writes the content that the target does not have, and then the manifest.

The broker reports the extents of its logs twice. The first copy runs while the broker works as usual, and may take
hours; the second one copies the difference while the broker holds its files, which takes seconds.
"""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..local_broker import LocalBroker
from .batch_check import BatchCheck
from .manifest import (
    METADATA_FILE,
    BackupFile,
    BackupManifest,
    BackupPart,
    BackupPartition,
    backup_ids,
    manifest_name,
    new_backup_id,
    read_manifest,
)
from .source import HeldFiles, HoldLostError, SourceChangedError, SourceFile, SourceFolder, partition_folder
from .target import OBJECTS, BackupError, Target, object_name

PART_BYTES = 16 * 1024 * 1024
"""The maximum size of an object. A backup has a few parts of this size in memory."""
INLINE_BYTES = 2048
"""Files up to this size are in the manifest itself."""
MAX_SMALL_PARTS = 32
"""Parts that the backups of a growing file may add to it before the file is copied again, in large parts."""
HOLD_ATTEMPTS = 3
"""Number of holds before the backup fails, because the broker was restarted or did not respond during each."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
META_PROPERTIES = "meta.properties"

Progress = Callable[[float], None]


def take_backup(target: Target, broker: LocalBroker, progress: Progress = lambda part: None) -> BackupManifest:
    """Back up a broker, and return the manifest. `progress` receives the part of the bytes that is copied, 0 to 1.

    Raises BackupError, LocalBrokerError, OSError, and errors of the target's protocol. The earlier backups are not
    changed.
    """
    with target.writing():
        try:
            return _take(target, broker, progress)
        except OSError as error:
            if error.errno in NO_SPACE:  # objects of failed backups would let the next one fail, too
                with suppress(BackupError, OSError):
                    _delete_unneeded_objects(target, backup_ids(target))
            raise


def _take(target: Target, broker: LocalBroker, progress: Progress) -> BackupManifest:
    ids = backup_ids(target)
    newest = _newest(target, ids)
    writer = BackupWriter(target, newest)
    before = broker.request("POST", "/backup", {})
    _check_owner(target, newest, before)
    _check_place(before)
    writer.copy(before, progress)
    for attempt in range(1, HOLD_ATTEMPTS + 1):
        try:
            with HeldFiles(broker) as held:
                partitions = writer.copy(held.facts, progress, held)
                files = [writer.copy_path(METADATA_FILE, held.facts["metadata"])]
                files.append(writer.copy_path(META_PROPERTIES, f"{held.facts['log_dirs'][0]}/{META_PROPERTIES}"))
                held.end()
            break
        except HoldLostError as error:
            if attempt == HOLD_ATTEMPTS:
                raise BackupError(f"the broker did not keep its files unchanged for the backup: {error}") from None
    manifest = BackupManifest(
        id=new_backup_id(time.time_ns() // 1_000_000, ids),
        created_ms=held.facts["time_ms"],
        software=held.facts["version"],
        cluster_id=held.facts["cluster_id"],
        broker_id=held.facts["broker_id"],
        new_bytes=writer.new_bytes,
        files=files,
        partitions=partitions,
    )
    target.write(manifest_name(manifest.id), manifest.encode())
    return read_manifest(target, manifest.id)


def delete_old_backups(target: Target, keep: int) -> list[str]:
    """Delete all backups but the newest `keep`, and the objects that no backup needs; return the deleted ids.

    Raises BackupError if a manifest to be kept cannot be read, because its objects are not known; then nothing is
    deleted.
    """
    with target.writing():
        ids = backup_ids(target)
        kept, old = ids[-keep:], ids[:-keep]
        for backup_id in kept:
            read_manifest(target, backup_id)
        for backup_id in old:
            target.delete(manifest_name(backup_id))
        _delete_unneeded_objects(target, kept)
    return old


def _delete_unneeded_objects(target: Target, ids: list[str]) -> None:
    """Delete the objects that these backups do not need. Raises BackupError if one of the manifests cannot be read."""
    needed = {name for backup_id in ids for name in read_manifest(target, backup_id).object_names()}
    for name in target.sizes(OBJECTS):
        if name not in needed:
            target.delete(name)


def _newest(target: Target, ids: list[str]) -> BackupManifest | None:
    """Return the newest manifest that can be read.

    A damaged manifest does not prevent a backup; without a manifest, all files are read again.
    """
    for backup_id in reversed(ids):
        try:
            return read_manifest(target, backup_id)
        except BackupError:
            continue
    return None


def _check_owner(target: Target, newest: BackupManifest | None, facts: Mapping[str, Any]) -> None:
    if newest is not None and newest.cluster_id != facts["cluster_id"]:
        raise BackupError(
            f"{target.name} has backups of cluster {newest.cluster_id}, and the broker belongs to cluster "
            f"{facts['cluster_id']}. Use another target"
        )


def _check_place(facts: Mapping[str, Any]) -> None:
    for log_dir in facts["log_dirs"]:
        if not Path(log_dir).is_dir():
            raise BackupError(
                f"{log_dir}: no such directory. Run this command where the broker runs, or in its container"
            )


def _check_unheld(held: HeldFiles | None, problem: str) -> None:
    """Raise an error for a problem during a hold: HoldLostError if the hold has ended, otherwise BackupError.

    While the broker holds its files, only another program can change them. Without a hold the problem is normal.
    """
    if held is not None:
        held.check()
        raise BackupError(f"{problem}: another program has changed files of the broker during the backup")


class BackupWriter:
    """The copy of a broker's files to a target. Inodes identify the files that were copied before."""

    def __init__(self, target: Target, newest: BackupManifest | None) -> None:
        """`newest` is the backup with which the files of the broker are compared; None for the first backup."""
        self.new_bytes = 0
        self._target = target
        self._objects = target.sizes(OBJECTS)
        self._known: dict[tuple[str | None, str], BackupFile] = {}
        if newest is not None:
            for partition in newest.partitions:
                self._remember(partition)

    def copy(
        self, facts: Mapping[str, Any], progress: Progress, held: HeldFiles | None = None
    ) -> list[BackupPartition]:
        """Copy all partitions up to their extents. Without a hold, partitions and files may be missing in the result.

        Raises HoldLostError, BackupError, OSError, and errors of the target's protocol.
        """
        total = sum(size for one in facts["partitions"] for _, size in one["segments"]) or 1
        done, copied = 0, []
        for one in facts["partitions"]:
            try:
                with partition_folder(facts["log_dirs"][one["log_dir"]], one) as folder:
                    partition = self._copy_partition(folder, one, held)
            except SourceChangedError as error:
                _check_unheld(held, f"{one['topic']}-{one['partition']}: {error}")
                continue
            self._remember(partition)
            copied.append(partition)
            done += sum(size for _, size in one["segments"])
            progress(done / total)
        return copied

    def copy_path(self, name: str, path: str) -> BackupFile:
        """Copy a whole file as a file of the log directory itself. Raises OSError."""
        return self._file_of(name, Path(path).read_bytes())

    def _remember(self, partition: BackupPartition) -> None:
        for file in partition.files:
            self._known[partition.topic_id, f"{partition.folder}/{file.name}"] = file

    def _copy_partition(
        self, folder: SourceFolder, facts: Mapping[str, Any], held: HeldFiles | None
    ) -> BackupPartition:
        partition = BackupPartition(
            topic=facts["topic"],
            partition=facts["partition"],
            topic_id=facts["topic_id"],
            log_start_offset=facts["log_start_offset"],
            log_end_offset=facts["log_end_offset"],
            clean_offset=facts["clean_offset"],
            files=[],
        )
        for base_offset, size in facts["segments"]:
            if held is not None:
                held.check()
            name = f"{base_offset:020d}.log"
            known = self._known.get((partition.topic_id, f"{partition.folder}/{name}"))
            try:
                with folder.open(name, f"{name}.deleted") as source:
                    partition.files.append(self._copy_segment(source, name, base_offset, size, known))
            except SourceChangedError as error:
                _check_unheld(held, f"{partition.folder}/{name}: {error}")
        for name in sorted(folder.names()):
            stem, _, suffix = name.partition(".")
            is_snapshot = suffix == "snapshot" and stem.isdecimal() and int(stem) <= partition.log_end_offset
            if is_snapshot or name in ("partition.metadata", "leader-epoch-checkpoint"):
                content = folder.read(name)
                if content is not None:
                    partition.files.append(self._file_of(name, content))
        return partition

    def _file_of(self, name: str, content: bytes) -> BackupFile:
        if len(content) <= INLINE_BYTES:
            return BackupFile(name, len(content), content=content)
        pieces = [content[start : start + PART_BYTES] for start in range(0, len(content), PART_BYTES)]
        return BackupFile(name, len(content), [self._store(piece) for piece in pieces])

    def _copy_segment(
        self, source: SourceFile, name: str, base_offset: int, size: int, known: BackupFile | None
    ) -> BackupFile:
        """Copy the first `size` bytes of a segment; of a segment that has grown, only the new bytes."""
        copied = BackupFile(name, size, inode=source.inode, changed_ns=source.changed_ns)
        if known is not None and self._is_beginning(known, source, size):
            copied.parts = list(known.parts)
        position = sum(part.size for part in copied.parts)
        check = BatchCheck(base_offset, size, position)
        while position < size:
            piece = source.read(min(PART_BYTES, size - position), position)
            check.feed(piece)
            copied.parts.append(self._store(piece))
            position += len(piece)
        check.finish()
        copied.damage = check.damage
        return copied

    def _is_beginning(self, known: BackupFile, source: SourceFile, size: int) -> bool:
        """Return whether the copy of an earlier backup is the beginning of this file, with all its objects.

        Segments are only appended to; the cleaner puts new files into their places. The inode of a deleted file may be
        used again, but its time of change is later, and then the last part of the copy is compared.
        """
        if known.inode != source.inode or known.size > size or known.damage is not None:
            return False
        if len(known.parts) > 2 * (known.size // PART_BYTES) + MAX_SMALL_PARTS:
            return False
        if any(self._objects.get(object_name(part.sha256)) != part.size for part in known.parts):
            return False
        if known.changed_ns == source.changed_ns or not known.parts:
            return True
        last = known.parts[-1]
        return _sha256(source.read(last.size, known.size - last.size)) == last.sha256

    def _store(self, content: bytes) -> BackupPart:
        """Write content that the target does not have, and read it back."""
        part = BackupPart(len(content), _sha256(content))
        name = object_name(part.sha256)
        if self._objects.get(name) != part.size:
            self._target.write(name, content)
            if _sha256(self._target.read_back(name)) != part.sha256:
                raise BackupError(
                    f"{self._target.name}/{name}: the stored content differs from the content that was written"
                )
            self._objects[name] = part.size
            self.new_bytes += part.size
        return part


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
