"""The output of a job: a new directory, or with `--overwrite` a replacement of an earlier output of a job only.

A job writes into a separate directory next to its output, with a list of the files in it. Files of others, or changed
files, are therefore detected.
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
"""Prefix of names that Spark ignores; brokers ignore files."""

KEEP_VERSIONS = ("delta", "iceberg")
"""Formats that overwrite a table with a new version of it, so that nothing is deleted."""


def check_output(output: str, *, overwrite: bool = False) -> None:
    """Reject existing output on this machine, except an empty directory."""
    if "://" in output:
        if overwrite:
            fail(f"--overwrite requires a directory of this machine: {output}")
        return
    path = Path(output)
    if path.is_symlink() and overwrite:
        fail(f"{path} is a link; no file is deleted")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        fail(f"{output} exists; add --overwrite to replace it")
    if (foreign := _foreign(path)) is not None:
        fail(f"{path / foreign} was not written by this command; no file is deleted")


@contextmanager
def written(output: str, *, overwrite: bool = False) -> Iterator[str]:
    """Yield the path to write to; afterwards it is renamed to `output`, and the previous output is deleted."""
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
    """Check the previous output again after it has been renamed; foreign files are restored."""
    path.rename(old)
    try:
        if any(old.iterdir()) and (foreign := _foreign(old)) is not None:
            fail(f"{path / foreign} has been written by another program; no file is deleted")
        new.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old)


def _files(path: Path) -> dict[str, list[int]]:
    """Return size and time of change (ns) of all files by name; links are not followed."""
    found = ((one, one.lstat()) for one in path.rglob("*") if one.is_symlink() or not one.is_dir())
    return {one.relative_to(path).as_posix(): [stat.st_size, stat.st_mtime_ns] for one, stat in found}


def _foreign(path: Path) -> str | None:
    """Return the name of the first file that no job has written."""
    try:
        listed = json.loads((path / LIST).read_text())
        return next(
            (name for name, stat in sorted(_files(path).items()) if name != LIST and listed.get(name) != stat), None
        )
    except (OSError, ValueError, AttributeError):
        return ""
