"""Reading backups: verification, and the restore into a new data directory."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ..reasons import reason
from .batch_check import BatchCheck
from .manifest import METADATA_FILE, BackupFile, BackupManifest, BackupPartition, backup_ids, read_manifest
from .target import BackupError, Target, object_name

UNFINISHED = ".restoring"
"""The folder in the new data directory that has the files until all of them are complete. A broker ignores it."""
RECOVERY_POINTS, LOG_STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"
HIGH_WATERMARKS, CLEAN_OFFSETS = "replication-offset-checkpoint", "cleaner-offset-checkpoint"

Progress = Callable[[float], None]


def verify_backups(
    target: Target, ids: list[str], progress: Progress = lambda part: None
) -> tuple[int, list[tuple[str, str]]]:
    """Read all content of backups; return its bytes, and the problems of each backup as (id, problem).

    Content that several backups share is read once.
    """
    problems: list[tuple[str, str]] = []
    verified: dict[tuple[str, ...], list[str]] = {}
    read = 0
    for number, backup_id in enumerate(ids):
        try:
            manifest = read_manifest(target, backup_id)
        except BackupError as error:
            problems.append((backup_id, str(error)))
            continue
        total, done = manifest.size or 1, 0
        for path, file in manifest.all_files():
            key = (path, *(part.sha256 for part in file.parts)) if file.parts else (backup_id, path)
            if key not in verified:
                verified[key] = list(_problems_of(target, path, file))
                read += file.size
            problems += [(backup_id, problem) for problem in verified[key]]
            done += file.size
            progress((number + done / total) / len(ids))
    return read, problems


def restore_backup(
    target: Target, backup_id: str | None, folder: Path, progress: Progress = lambda part: None
) -> tuple[BackupManifest, list[str]]:
    """Restore a backup, the newest by default, into an empty folder; return its manifest and warnings.

    All content is checked before the files are moved to their places. Raises BackupError with the first damaged file,
    OSError, and errors of the target's protocol; then the folder is empty, or is deleted if it did not exist before.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BackupError(f"{folder} is not an empty directory. Choose a new directory")
    manifest = _newest_manifest(target) if backup_id is None else read_manifest(target, backup_id)
    is_new = not folder.exists()
    unfinished = folder / UNFINISHED
    unfinished.mkdir(parents=True, mode=0o700)
    try:
        warnings = _write_files(target, manifest, unfinished, progress)
        _write_checkpoints(manifest, unfinished)
        _sync_tree(unfinished)
        # Files such as meta.properties after the partitions: a broker that finds them finds all of its partitions.
        for path in sorted(unfinished.iterdir(), key=lambda path: (path.is_file(), path.name)):
            path.rename(folder / path.name)
        unfinished.rmdir()
        _sync(folder)
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(folder if is_new else unfinished)
        raise
    return manifest, warnings


def _newest_manifest(target: Target) -> BackupManifest:
    ids = backup_ids(target)
    if not ids:
        raise BackupError(f"{target.name}: there is no backup")
    return read_manifest(target, ids[-1])


def _content(target: Target, path: str, file: BackupFile) -> Iterator[bytes]:
    """Yield the content of a file, each part after the check of its SHA-256. Raises BackupError with the object."""
    if file.content is not None:
        yield file.content
    for part in file.parts:
        name = object_name(part.sha256)
        try:
            content = target.read(name)
        except FileNotFoundError:
            raise BackupError(f"{path}: {target.name}/{name} is missing") from None
        if len(content) != part.size or hashlib.sha256(content).hexdigest() != part.sha256:
            raise BackupError(f"{path}: {target.name}/{name} is damaged")
        yield content


def _problems_of(target: Target, path: str, file: BackupFile) -> Iterator[str]:
    check = _batch_check(file)
    try:
        if path == METADATA_FILE:
            with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
                copy = Path(folder, METADATA_FILE)
                copy.write_bytes(b"".join(_content(target, path, file)))
                _check_database(copy)
            return
        for piece in _content(target, path, file):
            if check is not None:
                check.feed(piece)
    except BackupError as error:
        yield str(error)
        return
    except OSError as error:
        yield f"{path}: {reason(error)}"
        return
    if check is not None:
        check.finish()
        if check.damage is not None:
            source = " (the broker's file was damaged)" if file.damage is not None else ""
            yield f"{path}: {check.damage}{source}"


def _batch_check(file: BackupFile) -> BatchCheck | None:
    return BatchCheck(int(file.name.partition(".")[0]), file.size) if file.name.endswith(".log") else None


def _check_database(path: Path) -> None:
    """Check that SQLite can read the whole metadata store. Raises BackupError."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            (result,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            database.execute("SELECT count(*) FROM nodes").fetchone()
    except sqlite3.Error as error:
        raise BackupError(f"{METADATA_FILE}: {error}") from None
    if result != "ok":
        raise BackupError(f"{METADATA_FILE}: {result}")


def _write_files(target: Target, manifest: BackupManifest, folder: Path, progress: Progress) -> list[str]:
    """Write and check all files; return the damage that the broker's files already had. Raises BackupError, OSError."""
    warnings, done, total = [], 0, manifest.size or 1
    ends: dict[str, int] = {}
    for partition in manifest.partitions:
        (folder / partition.folder).mkdir(mode=0o755)
    for path, file in manifest.all_files():
        check = _batch_check(file)
        mode = 0o600 if path == METADATA_FILE else 0o644  # the metadata store has the credentials of users
        with os.fdopen(os.open(folder / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as copy:
            for piece in _content(target, path, file):
                if check is not None:
                    check.feed(piece)
                copy.write(piece)
                done += len(piece)
                progress(done / total)
        if check is None:
            continue
        check.finish()
        if check.damage is not None and file.damage is None:
            raise BackupError(f"{path}: {check.damage}")
        if check.damage is not None:
            warnings.append(f"{path}: {check.damage} (the broker's file was damaged)")
        ends[path.partition("/")[0]] = check.next_offset if check.damage is None else -1
    for partition in manifest.partitions:
        end = ends.get(partition.folder)
        if end is None:
            raise BackupError(f"{partition.folder} has no segment")
        if end not in (partition.log_end_offset, -1):
            raise BackupError(f"{partition.folder} ends at offset {end} instead of {partition.log_end_offset}")
    _check_database(folder / METADATA_FILE)
    return warnings


def _write_checkpoints(manifest: BackupManifest, folder: Path) -> None:
    """Write the checkpoints of the log directory. All records are on the disk, so recovery points are the ends."""
    partitions = manifest.partitions
    ends = [(one, one.log_end_offset) for one in partitions]
    _write_checkpoint(folder / RECOVERY_POINTS, ends)
    _write_checkpoint(folder / HIGH_WATERMARKS, ends)
    _write_checkpoint(folder / LOG_STARTS, [(one, one.log_start_offset) for one in partitions if one.log_start_offset])
    _write_checkpoint(
        folder / CLEAN_OFFSETS, [(one, one.clean_offset) for one in partitions if one.clean_offset is not None]
    )


def _write_checkpoint(path: Path, offsets: list[tuple[BackupPartition, int]]) -> None:
    lines = ["0", str(len(offsets)), *(f"{one.topic} {one.partition} {offset}" for one, offset in offsets), ""]
    path.write_text("\n".join(lines), encoding="ascii")


def _sync_tree(folder: Path) -> None:
    """Write all files to the disk: by one sync of the file system if possible, as there may be many. Raises OSError."""
    filesystem: Any = import_module("barnabas.storage.filesystem")
    if filesystem.OsFileSystem().sync_disk(str(folder)):
        return
    for parent, _, names in os.walk(folder):
        for path in (*(Path(parent, name) for name in names), Path(parent)):
            _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
