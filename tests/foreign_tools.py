"""External tools for tests: looking up a command, and a locked cache of downloads and builds.

A missing tool skips the test, with the name of the tool as the reason. With `CI=true` it fails the test, because CI
must run all checks.
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


def skip_or_fail(reason: str) -> None:
    """Skip the running test with this reason, or fail it with `CI=true`."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require_tool(name: str, hint: str) -> str:
    """Return the path of a command. Skip or fail the test if it is not installed (see `skip_or_fail`)."""
    path = shutil.which(name)
    if path is None:
        skip_or_fail(f"{name} is not installed ({hint})")
        raise AssertionError("unreachable: skip_or_fail() always raises")
    return path


def cache_dir(name: str) -> Path:
    """Return a folder for downloads and builds: `$BARNABAS_CACHE/name`, or `.cache/name` in the checkout."""
    root = Path(os.environ.get("BARNABAS_CACHE") or CHECKOUT / ".cache")
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock file next to `folder`, so that parallel test processes create a cache entry only once."""
    with (folder.parent / f".{folder.name}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(lock_file, fcntl.LOCK_UN)


@contextmanager
def cache_entry(parent: Path, name: str) -> Iterator[tuple[Path, Path | None]]:
    """Yield the folders `(entry, scratch)`. After the block, `scratch` is renamed to `entry`.

    `scratch` is None if the entry exists already. If the block raises, no entry is created.
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
    """Return a short stable name for a cache entry that depends on `parts`."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big"))
        total.update(data)
    return total.hexdigest()[:16]


def run_checked(command: Sequence[str], *, cwd: Path | None = None) -> str:
    """Run a build step and return its output. Raises RuntimeError with the end of the output if it fails."""
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


def build_copy(cache: str, source_dir: Path, command: Sequence[str], *shared: Path) -> Path:
    """Copy the files of `source_dir` and of the folders `shared`, run `command` in the copy, and return its folder.

    Unchanged files are built only once.
    """
    sources = sorted(path for folder in (source_dir, *shared) for path in folder.iterdir() if path.is_file())
    parts = [part for path in sources for part in (path.name, path.read_bytes())]
    with cache_entry(cache_dir(cache), f"{source_dir.name}-{digest(*parts)}") as (entry, scratch):
        if scratch is not None:
            for path in sources:
                shutil.copy(path, scratch)
            run_checked(command, cwd=scratch)
    return entry
