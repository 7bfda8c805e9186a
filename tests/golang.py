"""Go for tests: a module's program built once into the cache, and run."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.tools import cache_dir, cache_entry, digest, require_tool, run_checked


def require_go() -> None:
    """Skip the test unless `go` is here; under `CI=true` fail it."""
    require_tool("go", "these tests need Go")


def built(source_dir: Path) -> Path:
    """The executable of the module in `source_dir`; an unchanged one is built once."""
    require_go()
    sources = sorted(path for path in source_dir.iterdir() if path.is_file())
    parts = [part for path in sources for part in (path.name, path.read_bytes())]
    with cache_entry(cache_dir("golang"), f"{source_dir.name}-{digest(*parts)}") as (entry, scratch):
        if scratch is not None:
            for path in sources:
                shutil.copy(path, scratch)
            run_checked(["go", "build", "-o", "program", "."], cwd=scratch)
    return entry / "program"


def run_go(program: Path, args: Sequence[str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a built program to its end."""
    return subprocess.run([str(program), *args], capture_output=True, text=True, timeout=timeout, check=False)
