"""Where a job writes: into nothing, or with `--overwrite` in the place of what such a job has written, and only that.

A job writes beside its place, where nobody else does, and what it wrote is listed in a file of that folder. So
another's file, or one that was changed later, is told from ours however it came there.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .session import fail

LIST = "_barnabas_output"
"""Spark passes names over that begin so, and brokers look at folders only."""

KEEP_VERSIONS = ("delta", "iceberg")
"""Formats that write over a table by a new version of it, so that nothing is deleted."""


def check_output(output: str, *, overwrite: bool = False) -> None:
    """Refuse what is there already on this machine; an empty folder is fine."""
    if "://" in output:
        if overwrite:
            fail(f"--overwrite is for folders of this machine, and {output} is none")
        return
    path = Path(output)
    if path.is_symlink() and overwrite:
        fail(f"{path} is a link; nothing is deleted")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        fail(f"{output} is there already; nothing is written over it, unless --overwrite says so")
    if (foreign := _foreign(path)) is not None:
        fail(f"{path / foreign} was not written by this command; nothing is deleted")


@contextmanager
def written(output: str, *, overwrite: bool = False) -> Iterator[str]:
    """Where to write; when that is done it is at `output`, and what was there is gone."""
    if "://" in output:
        yield output
        return
    path = Path(output).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    new = beside / "new"
    try:
        yield str(new)
        new.mkdir(exist_ok=True)
        (new / LIST).write_text(json.dumps(_files(new)))
        if overwrite and path.exists():
            _replace(path, new, beside / "old")
        else:
            new.rename(path)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if not any(beside.iterdir()):
            beside.rmdir()


def _replace(path: Path, new: Path, old: Path) -> None:
    """The old one is looked at once more where nobody finds it by its name; if it is not ours, it goes back."""
    path.rename(old)
    try:
        if any(old.iterdir()) and (foreign := _foreign(old)) is not None:
            fail(f"{path / foreign} has been written by another meanwhile; nothing is deleted")
        new.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old)


def _files(path: Path) -> dict[str, list[int]]:
    """Size and time of change (ns) of all that is no folder, by name; links are not followed."""
    found = ((one, one.lstat()) for one in path.rglob("*") if one.is_symlink() or not one.is_dir())
    return {one.relative_to(path).as_posix(): [stat.st_size, stat.st_mtime_ns] for one, stat in found}


def _foreign(path: Path) -> str | None:
    """The name of the first thing there that no job has written."""
    try:
        listed = json.loads((path / LIST).read_text())
        return next(
            (name for name, stat in sorted(_files(path).items()) if name != LIST and listed.get(name) != stat), None
        )
    except (OSError, ValueError, AttributeError):
        return ""
