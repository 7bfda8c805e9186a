"""What tests of foreign clients share: finding a tool, the cache of downloaded things, and a lock around filling it.

A missing tool skips the test with the tool's name as the reason; with `CI=true` it fails, because there the
checks have to run.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


def missing(reason: str) -> None:
    """Skip the running test because of `reason`; fail it under `CI=true`."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require_tool(name: str, hint: str) -> str:
    """The path of the command `name`; without it the test is skipped (or fails, see `missing`)."""
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not installed ({hint})")
        raise AssertionError("unreachable: missing() never returns")
    return path


def cache_dir(name: str) -> Path:
    """A folder for downloaded or compiled things: `$BARNABAS_CACHE/name`, or `.cache/name` in the checkout."""
    root = Path(os.environ.get("BARNABAS_CACHE") or CHECKOUT / ".cache")
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the one lock beside `folder`, so that test processes side by side fill a cache entry once."""
    with (folder.parent / f".{folder.name}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(lock_file, fcntl.LOCK_UN)


@contextmanager
def cache_entry(parent: Path, name: str) -> Iterator[tuple[Path, Path | None]]:
    """Yield `(entry, scratch)`: what the block puts into `scratch` becomes `entry` by rename.

    `scratch` is None when the entry is there already; a block that raises leaves no entry behind.
    """
    entry = parent / name
    if entry.is_dir():
        yield entry, None
        return
    with locked(entry):
        if entry.is_dir():
            yield entry, None
            return
        scratch = parent / f"{name}.tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        yield entry, scratch
        scratch.rename(entry)


def digest(*parts: str | bytes) -> str:
    """A short stable name for a cache entry made from `parts`."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big"))
        total.update(data)
    return total.hexdigest()[:16]


def run_checked(command: Sequence[str], *, cwd: Path | None = None) -> str:
    """Run a build step and return its output; a failure shows the last part of what it printed."""
    result = subprocess.run(
        list(command),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} exited {result.returncode}:\n{result.stdout[-4000:]}")
    return result.stdout


def built_copy(cache: str, source_dir: Path, command: Sequence[str], *shared: Path) -> Path:
    """A copy of the files of `source_dir` and the folders `shared` in which `command` was run; of unchanged files one
    is made once.
    """
    sources = sorted(path for folder in (source_dir, *shared) for path in folder.iterdir() if path.is_file())
    parts = [part for path in sources for part in (path.name, path.read_bytes())]
    with cache_entry(cache_dir(cache), f"{source_dir.name}-{digest(*parts)}") as (entry, scratch):
        if scratch is not None:
            for path in sources:
                shutil.copy(path, scratch)
            run_checked(command, cwd=scratch)
    return entry
