"""Go for tests: a module's program built once into the cache, and run."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.foreign_tools import built_copy, require_tool


def require_go() -> None:
    """Skip the test unless `go` is here; under `CI=true` fail it."""
    require_tool("go", "these tests need Go")


def built(source_dir: Path, *shared: Path) -> Path:
    """The executable of the module in `source_dir` with files of `shared` added; an unchanged one is built once."""
    require_go()
    return built_copy("golang", source_dir, ["go", "build", "-o", "program", "."], *shared) / "program"


def run_go(program: Path, args: Sequence[str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a built program to its end."""
    return subprocess.run([str(program), *args], capture_output=True, text=True, timeout=timeout, check=False)
